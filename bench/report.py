"""The table a person reads: figures beside bars. Knows outcomes, not how they came about."""

import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from bench.registry import Case, Measured, NotMeasured

PEERS = ("torch", "transformers", "xllamacpp")


@dataclass(frozen=True, slots=True)
class Row:
    """One case on one model. `outcome` is text where it went wrong: what the gate or the engine said."""

    case: Case
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


def table(rows: list[Row]) -> str:
    """Aligned columns; what each case compares stands below."""
    lines = [HEADINGS, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    shown = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
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
    lines = [f"{_processor()}, {threads} threads each; {peers}"]
    if quick:
        lines.append(
            "quick: an eighth of the tokens and requests, few repetitions; no verdict on the bars"
        )
    return "\n".join(lines)


def _processor() -> str:
    names = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return names[0] if names else platform.processor()
