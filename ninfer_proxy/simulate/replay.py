"""A workload run through one policy: the counts, and who lay in which slot when. Knows the seam, no policy."""

from collections.abc import Sequence
from dataclasses import dataclass

from ninfer_proxy.simulate.cost import Cost
from ninfer_proxy.simulate.policy import Begun, Policy
from ninfer_proxy.simulate.request import Request
from ninfer_proxy.simulate.schedule import Happens, schedule


@dataclass(frozen=True, slots=True)
class Stay:
    """A conversation's state in a slot from its arrival to its end, in seconds."""

    slot: int
    conversation: str
    begins: float
    ends: float


@dataclass(frozen=True, slots=True)
class Result:
    """`time_s` is the time from each request's arrival to its prompt's end, summed; `reused[i]` belongs to the i-th request."""

    policy: str
    about: str
    requests: int
    prompt_tokens: int
    prefilled_tokens: int
    evictions: int
    time_s: float
    reused: tuple[int, ...]
    stays: tuple[Stay, ...] = ()

    @property
    def prefilled_share(self) -> float:
        return self.prefilled_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


def replay(policy: Policy, requests: Sequence[Request], cost: Cost) -> Result:
    """Runs all of `requests` through a fresh `policy`."""
    reused = [0] * len(requests)
    stays = _Stays()
    evictions, now = 0, 0.0
    for now, what, index in schedule(requests):
        request = requests[index]
        if what is Happens.ENDS:
            evictions += policy.end(request)
            continue
        begun = policy.begin(request)
        assert 0 <= begun.reused_tokens <= request.prompt_tokens, "reuse is part of the prompt"
        reused[index] = begun.reused_tokens
        evictions += begun.evictions
        stays.note(begun, request.conversation, now)
    prompts = [request.prompt_tokens for request in requests]
    return Result(
        policy=policy.name,
        about=policy.about,
        requests=len(requests),
        prompt_tokens=sum(prompts),
        prefilled_tokens=sum(prompts) - sum(reused),
        evictions=evictions,
        time_s=sum(map(cost.seconds, prompts, reused)),
        reused=tuple(reused),
        stays=stays.until(now),
    )


class _Stays:
    """Mutable: open stays by slot, and those that are over."""

    def __init__(self) -> None:
        self._open: dict[int, Stay] = {}
        self._over: list[Stay] = []

    def note(self, begun: Begun, conversation: str, now: float) -> None:
        for slot in begun.evicted:
            self._close(slot, now)
        if begun.slot is None:
            return
        here = self._open.get(begun.slot)
        if here is None or here.conversation != conversation:
            self._close(begun.slot, now)
            self._open[begun.slot] = Stay(begun.slot, conversation, now, now)

    def until(self, end: float) -> tuple[Stay, ...]:
        """All stays, those still open ending at `end`, by slot and time."""
        for slot in tuple(self._open):
            self._close(slot, end)
        return tuple(sorted(self._over, key=lambda stay: (stay.slot, stay.begins)))

    def _close(self, slot: int, now: float) -> None:
        stay = self._open.pop(slot, None)
        if stay is not None:
            self._over.append(Stay(slot, stay.conversation, stay.begins, now))
