"""The seam between the replay and what it compares: a policy takes requests as they begin and end. Knows no clock."""

from dataclasses import dataclass
from typing import Protocol

from ninfer_proxy.simulate.request import Request


@dataclass(frozen=True, slots=True)
class Begun:
    """What a policy did with a request. `slot` is where its state lies (None: it has no places), `evicted` the slots given up for it,
    `evictions` how many conversations or checkpoints that someone could have gone on from were dropped for want of room.
    """

    reused_tokens: int
    slot: int | None = None
    evicted: tuple[int, ...] = ()
    evictions: int = 0


class Policy(Protocol):
    """Mutable. `begin` and `end` are called once for each request, in the order of time; ends go before begins of the same moment."""

    name: str
    about: str

    def begin(self, request: Request) -> Begun: ...

    def end(self, request: Request) -> int:
        """Returns evictions as in Begun."""
        ...
