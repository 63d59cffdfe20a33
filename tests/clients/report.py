"""The run as a person reads it: one table and the verdicts for each configuration. Doesn't decide anything."""

from collections.abc import Mapping, Sequence

from tests.clients.checks import Check
from tests.clients.proxy import Cold
from tests.clients.rows import Row

COLUMNS = (
    ("#", 3),
    ("sess", 4),
    ("kind", 13),
    ("sent KB", 7),
    ("prompt", 7),
    ("reused", 7),
    ("prefilled", 9),
    ("differs", 8),
    ("reason", 18),
    ("slot", 10),
    ("first tok", 9),
    ("cold", 8),
)


def table(rows: Sequence[Row], cold: Sequence[Cold]) -> str:
    """`differs`: tokens after the first difference from the session's last turn, what a perfect cache would prefill."""
    chills = {run.number: run for run in cold}
    lines = [_line([name for name, _ in COLUMNS]), _line(["-" * width for _, width in COLUMNS])]
    lines += [_line(_cells(row, chills.get(row.number))) for row in rows]
    return "\n".join(lines)


def verdicts(checks: Sequence[Check]) -> str:
    return "\n".join(
        f"{'PASS' if c.passed else 'FAIL'}  {c.name}\n      {c.detail}" for c in checks
    )


def totals(rows: Sequence[Row]) -> Mapping[str, int]:
    answered = [row for row in rows if row.answered and not row.scripted]
    return {
        "requests": len(rows),
        "prompt_tokens": sum(row.prompt for row in answered),
        "reused_tokens": sum(row.reused for row in answered),
        "prefilled_tokens": sum(row.prefilled for row in answered),
    }


def _cells(row: Row, cold: Cold | None) -> list[str]:
    kind = row.kind + (" *" if row.after_compaction else "")
    reason = "SCRIPTED" if row.scripted else (row.reason or row.decision or row.error or "-")
    sent = f"{row.sent_kb:.1f}{'c' if row.continued else ' '}"
    numbers = [f"{n:,}" for n in (row.prompt, row.reused, row.prefilled, row.differs)]
    times = [_seconds(row.first_token_s), _seconds(cold.first_token_s if cold else None)]
    return [
        str(row.number),
        row.session,
        kind,
        sent,
        *numbers,
        reason,
        row.slot or "-",
        *times,
    ]


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"


def _line(cells: Sequence[str]) -> str:
    wide = zip(cells, COLUMNS, strict=True)
    return "  ".join(
        f"{cell[: size + 6]:<{size}}"
        if name in ("sess", "kind", "reason", "slot")
        else f"{cell:>{size}}"
        for cell, (name, size) in wide
    ).rstrip()
