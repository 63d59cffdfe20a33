"""What happened in a run, counted and told. Knows no engine."""

import sys
import time
from collections import Counter
from dataclasses import dataclass, field

PROGRESS_EACH_S = 5.0
TIES_OF_COMPARED = 0.01
"""A larger part of the answers isn't decided by chance."""


@dataclass(slots=True)
class Tally:
    """`wrong` answers differ from the cold ones (ties apart); `failures` are ends that nobody caused: of requests, of the engine.
    `happened` counts all else by its kind; a run in which one of the `required` kinds never happened has proved nothing about it.
    """

    required: tuple[str, ...] = ()
    begun: float = field(default_factory=time.monotonic)
    requests: int = 0
    compared: int = 0
    ties: int = 0
    wrong: int = 0
    leaks: int = 0
    stuck: int = 0
    failures: int = 0
    happened: Counter[str] = field(default_factory=Counter)
    _told: float = 0.0

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.begun

    @property
    def clean(self) -> bool:
        """Nothing compared proves nothing."""
        bad = self.wrong or self.leaks or self.stuck or self.failures or self.missing
        return self.compared > 0 and not bad and self.ties <= TIES_OF_COMPARED * self.compared

    @property
    def missing(self) -> list[str]:
        """The required kinds that never happened."""
        return [kind for kind in self.required if not self.happened[kind]]

    def start(self) -> None:
        """The clock begins now: engines take a while to be ready."""
        self.begun = time.monotonic()

    def note(self, kind: str, count: int = 1) -> None:
        self.happened[kind] += count

    def complain(self, what: str) -> None:
        print(f"  {what}", file=sys.stderr, flush=True)

    def progress(self) -> None:
        """A line every few seconds."""
        if self.elapsed_s - self._told >= PROGRESS_EACH_S:
            self._told = self.elapsed_s
            print(self.line(), flush=True)

    def line(self) -> str:
        minutes, seconds = divmod(int(self.elapsed_s), 60)
        return (
            f"{minutes:3}:{seconds:02}  {self.requests} requests, {self.compared} compared ({self.ties} ties), "
            f"{self.wrong} wrong, {self.leaks} leaks, {self.stuck} stuck, {self.failures} failures"
        )

    def summary(self) -> str:
        width = max(map(len, (*self.happened, *self.required)), default=0)
        kinds = {*self.required, *self.happened}
        lines = [
            self.line(),
            *(f"  {kind:<{width}}{self.happened[kind]:>8}" for kind in sorted(kinds)),
        ]
        if self.failures:
            lines.append(f"{self.failures} failures that nothing had caused")
        if self.missing:
            lines.append(f"never happened: {', '.join(self.missing)}")
        lines.append(
            f"{self.requests} requests, {self.wrong} wrong tokens, {self.leaks} leaks, {self.stuck} stuck lanes"
        )
        return "\n".join(lines)
