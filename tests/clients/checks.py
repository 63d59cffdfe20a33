"""What must hold after a run of the real client. Pure: rows and the proxy's own report in, verdicts out."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from tests import recordings
from tests.clients.proxy import Cold
from tests.clients.rows import Row, sessions

TURNS = {"A": 6, "B": 7}  # six each, and one more in B after its compaction
# A later user turn may prefill at most this share of the head's tokens. A head is some 15,000 tokens and a
# turn some hundreds, so a quarter tells the two apart with room on both sides.
PREFILL_LIMIT = 0.25
# After a compaction everything behind the head is new; the head itself must still come from the cache.
REUSE_AFTER_COMPACTION = 0.9


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    passed: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Evidence:
    rows: Sequence[Row]
    slots: Sequence[Mapping[str, Any]]
    head_tokens: int
    tool_outputs: Sequence[str]
    compacted: bool  # what the client said of its compaction
    cold: Sequence[Cold]
    unexplained: Sequence[str]  # response ids that `explain` refused, with what it said
    headers: Sequence[Collection[str]]  # names of each request's headers


def all_checks(evidence: Evidence, tool_output: str) -> list[Check]:
    rows = evidence.rows
    return [
        _turns_answered(rows),
        _one_of_each(rows, evidence.compacted),
        _tool_ran(evidence, tool_output),
        _slots(evidence),
        _one_conversation_each(rows),
        _heads_kept(rows, evidence.head_tokens),
        _side_requests_harmless(rows),
        _reasons(rows, evidence.unexplained),
        _usage(rows),
        _cold_is_cold(evidence.cold),
        _warm_is_sooner(rows, evidence.cold),
        _headers_known(evidence.headers),
    ]


def prefill_bound(row: Row, head_tokens: int) -> str | None:
    """Why this user turn prefilled the head again, or None when it did not."""
    if row.after_compaction and row.reused < REUSE_AFTER_COMPACTION * head_tokens:
        return f"#{row.number} reused {row.reused} of a head of {head_tokens} after a compaction"
    if not row.after_compaction and row.prefilled > PREFILL_LIMIT * head_tokens:
        return f"#{row.number} prefilled {row.prefilled}, the head has {head_tokens}"
    return None


def _turns_answered(rows: Sequence[Row]) -> Check:
    turns = [row for row in rows if row.kind == "user turn" and row.answered]
    counts = {name: sum(row.session == name for row in turns) for name in sessions(rows)}
    enough = all(counts.get(name, 0) >= wanted for name, wanted in TURNS.items())
    broken = [f"#{row.number}: {row.error}" for row in rows if row.error or not row.answered]
    detail = f"{counts}; not answered: {broken or 'none'}"
    return Check("every user turn was answered in full", enough and not broken, detail)


def _one_of_each(rows: Sequence[Row], compacted: bool) -> Check:
    beats = sum(row.kind == "heartbeat" and row.answered for row in rows)
    summaries = sum(row.kind == "summary" and row.answered for row in rows)
    after = sum(row.after_compaction for row in rows)
    passed = compacted and beats >= 1 and summaries >= 1 and after >= 1
    detail = f"{beats} heartbeat, {summaries} summary requests, {after} turn on a compacted history"
    return Check("a heartbeat and a compaction happened", passed, detail)


def _tool_ran(evidence: Evidence, wanted: str) -> Check:
    passed = any(wanted in output for output in evidence.tool_outputs)
    scripted = any(row.scripted for row in evidence.rows)
    by = "SCRIPTED call, not the model's" if scripted else "the model's own call"
    return Check("OpenClaw ran the tool", passed, f"{by}; outputs: {list(evidence.tool_outputs)}")


def _slots(evidence: Evidence) -> Check:
    main = [slot for slot in evidence.slots if slot.get("class") != "side"]
    named = [str(slot.get("conversation")) for slot in main]
    wanted = len(sessions(evidence.rows))
    passed = len(main) == wanted == len(set(named))
    side = len(evidence.slots) - len(main)
    detail = f"{wanted} conversations, slots of {named}, {side} of class side"
    return Check("exactly one slot for each conversation", passed, detail)


def _one_conversation_each(rows: Sequence[Row]) -> Check:
    found = {name: _values(rows, name, lambda row: row.conversation) for name in sessions(rows)}
    slots = {name: _values(rows, name, lambda row: row.slot) for name in sessions(rows)}
    flat = [value for values in found.values() for value in values]
    passed = all(len(values) == 1 for values in found.values()) and len(set(flat)) == len(found)
    passed = passed and all(len(values) == 1 for values in slots.values())
    detail = f"conversations {found}, slots {slots}"
    return Check("explain names one conversation and one slot per session", passed, detail)


def _heads_kept(rows: Sequence[Row], head_tokens: int) -> Check:
    later = [row for row in rows if row.later_turn and row.answered]
    judged = [row for row in later if not row.head_changed]
    wrong = [why for row in judged if (why := prefill_bound(row, head_tokens))]
    waived = [row.number for row in later if row.head_changed]
    wanted = sum(TURNS.values()) - len(TURNS)
    passed = not wrong and len(judged) >= wanted - 2
    worst = max((row.prefilled for row in judged if not row.after_compaction), default=0)
    detail = (
        f"{len(judged)} later turns, worst prefill {worst} of at most {int(PREFILL_LIMIT * head_tokens)} "
        f"(head {head_tokens}); after a compaction at least {REUSE_AFTER_COMPACTION:.0%} of the head reused; "
        f"wrong: {wrong or 'none'}; client sent another head in: {waived or 'none'}"
    )
    return Check("no later user turn prefilled the head again", passed, detail)


def _side_requests_harmless(rows: Sequence[Row]) -> Check:
    """From user turn to user turn reuse only grows, whatever heartbeat, summary or other session came between."""
    shrunk: list[str] = []
    for name in sessions(rows):
        turns = [r for r in rows if r.session == name and r.kind == "user turn" and r.answered]
        shrunk += [
            f"#{after.number} reused {after.reused} after #{before.number} reused {before.reused}"
            for before, after in pairwise(turns)
            if after.reused < before.reused and not (after.after_compaction or after.head_changed)
        ]
    return Check("a session's reuse only grows", not shrunk, f"shrunk: {shrunk or 'none'}")


def _reasons(rows: Sequence[Row], unexplained: Sequence[str]) -> Check:
    asked = [row for row in rows if not row.scripted and row.status == 200]
    silent = [row.number for row in asked if not row.decision or not row.reason]
    detail = f"{len(asked)} requests, without a reason: {silent or 'none'}; explain failed: {list(unexplained) or 'none'}"
    return Check("every request has its reason (header and explain)", not silent, detail)


def _usage(rows: Sequence[Row]) -> Check:
    wrong = [
        row.number
        for row in rows
        if row.answered and not row.scripted and not 0 <= row.reused < row.prompt
    ]
    return Check("usage is present and reuse is below the prompt", not wrong, str(wrong or "all"))


def _cold_is_cold(cold: Sequence[Cold]) -> Check:
    wrong = [f"#{c.number}: reused {c.reused}, {c.error}" for c in cold if c.reused or c.error]
    passed = bool(cold) and not wrong
    return Check(
        "another API key reuses nothing", passed, f"{len(cold)} sent; {wrong or 'all cold'}"
    )


def _warm_is_sooner(rows: Sequence[Row], cold: Sequence[Cold]) -> Check:
    first = {row.number: row.first_token_s for row in rows}
    pairs = [(w, c.first_token_s) for c in cold if (w := first.get(c.number)) and c.first_token_s]
    if not pairs:
        return Check("first token sooner than cold", False, "no pair was measured")
    warm, chill = median(w for w, _ in pairs), median(c for _, c in pairs)
    detail = (
        f"median {warm:.2f} s warm, {chill:.2f} s cold, {len(pairs)} requests, same machine and run"
    )
    return Check("first token sooner than cold (less than half)", warm < chill / 2, detail)


def _headers_known(headers: Sequence[Collection[str]]) -> Check:
    """A header that came or went since the client was recorded may be the one by which it names its sessions."""
    known = recordings.known_headers("openclaw /v1/responses")
    sent = [set(recordings.telling(each)) for each in headers]
    new = set().union(*sent) - {*known["always"], *known["sometimes"]}
    gone = {name for name in known["always"] for each in sent if name not in each}
    detail = f"{len(sent)} requests; new: {sorted(new) or 'none'}; gone: {sorted(gone) or 'none'}"
    return Check(
        "OpenClaw sends the headers it is known for", bool(sent) and not new | gone, detail
    )


def _values(rows: Iterable[Row], session: str, pick: Callable[[Row], str | None]) -> list[str]:
    mine = (row for row in rows if row.session == session and row.main_line and not row.scripted)
    return sorted({str(pick(row)) for row in mine if row.answered})
