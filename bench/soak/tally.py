"""What happened in a run, counted and told. Knows no engine."""

import sys
import time
from dataclasses import dataclass, field

PROGRESS_EACH_S = 5.0


@dataclass(slots=True)
class Tally:
    """`wrong` answers differ from the cold ones (ties apart); `failures` are ends that nobody caused: of requests, of the engine."""

    begun: float = field(default_factory=time.monotonic)
    requests: int = 0
    compared: int = 0
    resumed: dict[str, int] = field(default_factory=dict)
    ties: int = 0
    wrong: int = 0
    leaks: int = 0
    stuck: int = 0
    aborted: int = 0
    refused: int = 0
    cut_off: int = 0
    failures: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    _told: float = 0.0

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.begun

    @property
    def clean(self) -> bool:
        """Nothing compared proves nothing."""
        return self.compared > 0 and not (self.wrong or self.leaks or self.stuck or self.failures)

    def start(self) -> None:
        """The clock begins now: engines take a while to be ready."""
        self.begun = time.monotonic()

    def resumed_from(self, tier: str) -> None:
        self.resumed[tier] = self.resumed.get(tier, 0) + 1

    def fault(self, kind: str) -> None:
        self.faults[kind] = self.faults.get(kind, 0) + 1

    def complain(self, what: str) -> None:
        print(f"  {what}", file=sys.stderr, flush=True)

    def progress(self) -> None:
        """A line every few seconds."""
        if self.elapsed_s - self._told >= PROGRESS_EACH_S:
            self._told = self.elapsed_s
            print(self.line(), flush=True)

    def line(self) -> str:
        minutes, seconds = divmod(int(self.elapsed_s), 60)
        resumed = listed(self.resumed) or "none"
        return (
            f"{minutes:3}:{seconds:02}  {self.requests} requests, {self.compared} compared ({self.ties} ties), "
            f"resumed: {resumed}; {self.aborted} aborted, {self.refused} refused, {self.cut_off} cut off; "
            f"faults: {listed(self.faults) or 'none'}; {self.wrong} wrong"
        )

    def summary(self) -> str:
        lines = [self.line()]
        if self.failures:
            lines.append(f"{self.failures} failures that nothing had caused")
        lines.append(
            f"{self.requests} requests, {self.wrong} wrong tokens, {self.leaks} leaks, {self.stuck} stuck lanes"
        )
        return "\n".join(lines)


def listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))
