"""Checks of the store and of the service as a whole. Each judges evidence: None, or why it doesn't hold."""

from collections.abc import Sequence

from tests.cases.evidence import Evidence

Verdict = str | None


def store(
    seen: Evidence, of: str, row: str | None = None, status_not: str | None = None
) -> Verdict:
    """What a client can read back of a response: nothing (`row` "absent"), something ("present"), not in that status."""
    answer = seen.answer(of)
    if not answer.response_id:
        return f"{of} has no id"
    record = answer.record
    if row is not None and (row == "absent") != (record is None):
        return f"wanted {row}, GET gives {record and record.get('status')}"
    if status_not is not None and record is not None and record.get("status") == status_not:
        return f"it is stored as {status_not}"
    return None


def db_integrity(seen: Evidence, equals: str) -> Verdict:
    found = seen.database.integrity
    return None if found and set(found) == {equals} else f"SQLite says {found}"


def row_count(seen: Evidence, equals: int) -> Verdict:
    """Of an installed fixture."""
    found = seen.database.fixture_rows
    return None if found == equals else f"{found} rows"


def row_count_not(seen: Evidence, equals: int) -> Verdict:
    found = seen.database.fixture_rows
    return None if found not in (None, equals) else f"{found} rows"


def rows_written_max(seen: Evidence, step: str, max: int) -> Verdict:
    """Rows that were added, in all tables."""
    added = seen.database.added.get(step)
    return None if added is not None and added <= max else f"{added} rows were added"


def acked_responses_present(seen: Evidence, of: str) -> Verdict:
    """Each response whose end reached its client can be read."""
    answers = [each for each in seen.generated.get(of, ()) if each.status == 200]
    if not answers:
        return f"no response of {of} reached its client"
    lost = [each.response_id for each in answers if each.record is None]
    return f"{len(lost)} of {len(answers)} are gone: {lost[:5]}" if lost else None


def not_silently_unstored(seen: Evidence, of: str) -> Verdict:
    """A response that was told as completed can be read."""
    answer = seen.answer(of)
    completed = answer.status == 200 and answer.final.get("status") == "completed"
    return f"{of} was completed and can't be read" if completed and answer.record is None else None


def server_alive(seen: Evidence) -> Verdict:
    status = seen.health.get("status")
    if not seen.alive:
        return "the process has ended"
    return None if status == "ok" else f"health says {status!r}: {seen.health}"


def health_degraded(seen: Evidence) -> Verdict:
    status = seen.health.get("status")
    return None if status not in (None, "ok") else f"health says {status!r}"


def reported(seen: Evidence, contains_any: Sequence[str]) -> Verdict:
    """In the log, the metrics or the health."""
    told = f"{seen.log}\n{seen.metrics}\n{seen.health}".lower()
    found = any(each.lower() in told for each in contains_any)
    return None if found else f"neither log, metrics nor health holds any of {list(contains_any)}"


def diagnostic(seen: Evidence, step: str, one_of: Sequence[str]) -> Verdict:
    """The reason that the response itself gives for what was computed."""
    diagnostics = seen.answer(step).final.get("prompt_cache_diagnostics") or {}
    reason = diagnostics.get("ninfer_reason")
    return None if reason in one_of else f"the reason is {reason!r}"


def host_memory_max(seen: Evidence, budget_factor: float) -> Verdict:
    """What the engine took beyond its start, against the budgets of its tiers in memory."""
    memory = seen.memory
    if memory is None:
        return "memory was not measured"
    grown, most = memory.at_most - memory.at_start, budget_factor * memory.budget
    return (
        None
        if grown <= most
        else f"{grown >> 20} MiB more than at the start, budget {memory.budget >> 20} MiB"
    )


CHECKS = (
    store,
    db_integrity,
    row_count,
    row_count_not,
    rows_written_max,
    acked_responses_present,
    not_silently_unstored,
    server_alive,
    health_degraded,
    reported,
    diagnostic,
    host_memory_max,
)
