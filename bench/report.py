"""The table a person reads: figures beside bars. Knows outcomes, not how they came about."""

import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.registry import Case, Measured, NotMeasured

PEERS = ("torch", "transformers", "xllamacpp")


@dataclass(frozen=True, slots=True)
class Row:
    """One case on one model ('' where it has none). `outcome` is text where it went wrong: what the gate or the engine said."""

    case: Case[Any]
    model: str
    outcome: Measured | NotMeasured | str

    @property
    def met(self) -> bool:
        return isinstance(self.outcome, Measured) and self.case.bar.met(self.outcome.figure)

    def cells(self) -> tuple[str, ...]:
        bar = str(self.case.bar)
        match self.outcome:
            case Measured(ours, baseline, figure):
                verdict = "met" if self.met else "MISSED"
                shown = f"{figure:.2f}{self.case.bar.unit}"
                return (self.case.name, self.model, ours, baseline, shown, bar, verdict)
            case NotMeasured(reason):
                return (self.case.name, self.model, "—", reason, "—", bar, "NOT MEASURED")
            case wrong:
                return (self.case.name, self.model, "—", wrong, "—", bar, "WRONG")


HEADINGS = ("case", "model", "ours", "baseline", "figure", "bar", "")
BESIDE = ("case", "model", "ours", "beside it", "figure", "bar", "")
"""Where a figure has no other side, but circumstances."""


def table(rows: list[Row], headings: tuple[str, ...] = HEADINGS) -> str:
    """Aligned columns, without those that are empty; what each case compares stands below."""
    columns = zip(headings, *(row.cells() for row in rows), strict=True)
    filled = [column for column in columns if not rows or any(column[1:])]
    padded = [[cell.ljust(max(map(len, column))) for cell in column] for column in filled]
    shown = ["  ".join(line).rstrip() for line in zip(*padded, strict=True)]
    shown.insert(1, "─" * max(map(len, shown)))
    legend = {row.case.name: row.case.what for row in rows}
    width = max(map(len, legend), default=0)
    notes = [f"{name.ljust(width)}  {what}" for name, what in legend.items()]
    return "\n".join([*shown, "", *notes])


def verdict(rows: list[Row]) -> str:
    """What couldn't be measured, or was wrong, isn't met."""
    met = sum(row.met for row in rows)
    return f"{met} met, {len(rows) - met} missed"


def conditions(threads: int, quick: bool) -> str:
    """Hardware and versions that the figures hold for."""
    peers = ", ".join(f"{name} {version(name)}" for name in PEERS)
    lines = [f"{processor()}, {threads} threads each; {peers}"]
    if quick:
        lines.append(
            "quick: an eighth of the tokens and requests, few repetitions; no verdict on the bars"
        )
    return "\n".join(lines)


def processor() -> str:
    """The processor's name."""
    names = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return names[0] if names else platform.processor()
