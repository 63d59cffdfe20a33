"""What a proxy's case measures with, and how its figures are told. Knows no case."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from bench.registry import QUICK_SHARE

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ProxyBench:
    """`quick` takes an eighth of the turns and conversations: a try-out, no verdict."""

    scratch: Path
    quick: bool
    _made: dict[Callable[..., Any], Any] = field(default_factory=dict)

    def share(self, amount: int) -> int:
        """`amount` turns or conversations, or a part of them."""
        return amount // QUICK_SHARE if self.quick else amount

    def once(self, make: Callable[["ProxyBench"], T]) -> T:
        """What `make` gives, made when it is first asked for: several rows are read off one run."""
        if make not in self._made:
            self._made[make] = make(self)
        made: T = self._made[make]
        return made


def at(times: Sequence[float], share: float) -> float:
    """The time that `share` of all times don't exceed."""
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"


def load() -> str:
    """How busy the machine has been in the last minute: 1.0 is one core's work."""
    return f"load {os.getloadavg()[0]:.1f}"
