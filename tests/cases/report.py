"""What a run of cases comes to: a line for each case, those of its checks that don't hold, the sum. Knows no server."""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.cases.case import Check


@dataclass(frozen=True, slots=True)
class Result:
    """`skipped` says what is absent; `broken` that the case could not be played to its end. `failed` and `missed` are checks that
    don't hold, `must` and `goal`, each with the reason.
    """

    id: str
    seconds: float = 0.0
    skipped: str = ""
    broken: str = ""
    failed: tuple[tuple[Check, str], ...] = ()
    missed: tuple[tuple[Check, str], ...] = ()

    @property
    def word(self) -> str:
        if self.skipped:
            return "skipped"
        return "FAILED" if self.broken or self.failed else "passed"


def lines(result: Result) -> list[str]:
    """Of one case."""
    told = [f"{result.word:8}{result.id}  {result.seconds:.1f} s"]
    if result.skipped:
        told = [f"{result.word:8}{result.id}  needs what isn't there: {result.skipped}"]
    if result.broken:
        told.append(f"        {result.broken}")
    told += [f"        {check}: {reason}" for check, reason in result.failed]
    told += [f"        goal not met: {check}: {reason}" for check, reason in result.missed]
    return told


def summary(results: Sequence[Result]) -> str:
    words = [result.word for result in results]
    return f"{words.count('passed')} passed, {words.count('FAILED')} failed, {words.count('skipped')} skipped"
