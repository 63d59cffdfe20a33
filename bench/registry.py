"""What a measurement is: a case, its bar, its outcome, and what an engine's case is given. Knows no engine."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:  # with torch behind it, which a proxy's cases do without
    from bench.models import BenchModel

Given = TypeVar("Given")

REPETITIONS, QUICK_REPETITIONS = 5, 2
QUICK_SHARE = 8


class WrongAnswer(Exception):
    """The correctness gate of a case: an answer differs from its reference. Nothing is timed after it."""


@dataclass(frozen=True, slots=True)
class Bar:
    """What the figure must reach. `unit` stands behind the number."""

    limit: float
    at_least: bool
    unit: str

    def met(self, figure: float) -> bool:
        return figure >= self.limit if self.at_least else figure <= self.limit

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.limit:g}{self.unit}"


@dataclass(frozen=True, slots=True)
class Measured:
    """`ours` and `baseline` are for a person, with units; the figure is compared with the bar."""

    ours: str
    baseline: str
    figure: float


@dataclass(frozen=True, slots=True)
class NotMeasured:
    """Counts as missed. `reason` says what is absent."""

    reason: str


@dataclass(frozen=True, slots=True)
class Bench:
    """What an engine's case measures with. `quick` takes an eighth of the tokens and requests, and fewer repetitions: a try-out, no verdict."""

    model: "BenchModel"
    threads: int
    quick: bool
    scratch: Path

    @property
    def repetitions(self) -> int:
        return QUICK_REPETITIONS if self.quick else REPETITIONS

    def share(self, amount: int) -> int:
        """`amount` tokens or requests, or a part of them."""
        return amount // QUICK_SHARE if self.quick else amount

    @property
    def context_tokens(self) -> int:
        """Room for the longest prompts and their answers."""
        return self.share(33_792)

    def config(self, **changes: object) -> dict[str, object]:
        """An engine configuration of this model on a CPU, as the product ships it but for what is named."""
        plain: dict[str, object] = {
            "model_dir": str(self.model.directory),
            "threads": self.threads,
            "context_tokens": self.context_tokens,
        }
        return plain | changes


@dataclass(frozen=True, slots=True)
class Case(Generic[Given]):
    """`what` names both sides of the figure. `run` is given what it measures with; `models` are those it makes sense for."""

    name: str
    what: str
    bar: Bar
    run: Callable[[Given], Measured | NotMeasured]
    models: tuple[str, ...] = ("demo", "wide")

    def outcome(self, given: Given) -> Measured | NotMeasured | str:
        """What running it comes to; in words where it goes wrong."""
        try:
            return self.run(given)
        except (WrongAnswer, RuntimeError) as error:
            return str(error)


def interleaved(sides: Sequence[Callable[[], float]], repetitions: int) -> list[float]:
    """The median of each side over repetitions in which the sides take turns, each second time in the other order."""
    times: list[list[float]] = [[] for _ in sides]
    for repetition in range(repetitions):
        order = range(len(sides)) if repetition % 2 == 0 else reversed(range(len(sides)))
        for side in order:
            times[side].append(sides[side]())
    return [statistics.median(each) for each in times]


def require_equal(what: str, ours: Sequence[int], reference: Sequence[int]) -> None:
    """Raises WrongAnswer that names the first difference."""
    if tuple(ours) == tuple(reference):
        return
    pairs = zip(ours, reference, strict=False)
    place = next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(ours), len(reference)))
    raise WrongAnswer(
        f"{what}: token {place} differs ({list(ours[place : place + 3])} against "
        f"{list(reference[place : place + 3])})"
    )
