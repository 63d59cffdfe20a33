"""One row for each recorded request: which session, what kind, what it cost, what it shared. Pure; doesn't judge."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from os.path import commonprefix
from typing import Any

from tests.clients.classify import (
    COMPACTED,
    MAIN_LINE,
    SYSTEM,
    Kind,
    head_of,
    kind_of,
    session_of,
    text_of,
    tool_names,
)
from tests.clients.recorder import Exchange


@dataclass(frozen=True, slots=True)
class Row:
    number: int
    session: str  # A, B, ... in order of appearance; "-" when the request names none
    kind: Kind
    continued: bool  # sent with previous_response_id
    response_id: str | None
    status: int | None
    answered: bool
    prompt: int
    reused: int
    prefilled: int
    differs: int  # tokens (estimated by characters) after the first difference from the session's last turn
    decision: str | None  # response header
    conversation: str | None  # from explain
    slot: str | None
    reason: str | None
    first_token_s: float | None
    seconds: float | None
    sent_kb: float
    later_turn: bool  # a user turn that is not its session's first
    after_compaction: bool
    head_changed: (
        bool  # the client itself sent other tools or other system text than in its last turn
    )
    head_share: float  # characters of tools + system text, as a share of the prompt's
    scripted: bool
    error: str | None

    @property
    def main_line(self) -> bool:
        return self.kind in MAIN_LINE

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def rows_of(exchanges: Iterable[Exchange], explained: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """`explained`: response id → what the proxy's `explain` says of it."""
    rows: list[Row] = []
    latest: dict[str, Exchange] = {}  # session → its newest main-line request
    by_response: dict[str, str] = {}
    names: dict[str, str] = {}
    for exchange in exchanges:
        if not exchange.path.endswith("/responses"):
            continue
        parent = str(exchange.body.get("previous_response_id"))
        found = session_of(exchange.body, exchange.headers) or by_response.get(parent)
        session = names.setdefault(found, chr(ord("A") + len(names))) if found else "-"
        row = _row(exchange, session, latest.get(session), explained)
        rows.append(row)
        if found and exchange.response_id:
            by_response[exchange.response_id] = found
        if row.main_line and exchange.answered:
            latest[session] = exchange
    return rows


def _row(
    exchange: Exchange,
    session: str,
    before: Exchange | None,
    explained: Mapping[str, Mapping[str, Any]],
) -> Row:
    kind = kind_of(exchange.body, exchange.history)
    head = head_of(exchange.body, exchange.history)
    text = head + flat(exchange.history)
    shared = _shared(text, before)
    said = explained.get(exchange.response_id or "", {})
    return Row(
        number=exchange.number,
        session=session,
        kind=kind,
        continued=bool(exchange.body.get("previous_response_id")),
        response_id=exchange.response_id,
        status=exchange.status,
        answered=exchange.answered,
        prompt=exchange.input_tokens,
        reused=exchange.cached_tokens,
        prefilled=exchange.prefilled_tokens,
        differs=round(exchange.input_tokens * (len(text) - shared) / len(text)),
        decision=exchange.decision,
        conversation=_text(said.get("conversation")),
        slot=_text(said.get("slot")),
        reason=_text(said.get("reason")),
        first_token_s=exchange.first_content_s,
        seconds=exchange.ended - exchange.started if exchange.ended else None,
        sent_kb=len(json.dumps(exchange.body)) / 1024,
        later_turn=kind == "user turn" and before is not None,
        after_compaction=before is not None
        and _compacted(exchange.history)
        and not _compacted(before.history),
        head_changed=before is not None and head != head_of(before.body, before.history),
        head_share=len(head) / len(text),
        scripted=exchange.scripted,
        error=exchange.error,
    )


def flat(history: Sequence[Mapping[str, Any]]) -> str:
    """What follows the head as one string, without what replay drops or adds (ids, statuses, annotations)."""
    return "".join(f"\n{_item(item)}" for item in history if item.get("role") not in SYSTEM)


def sessions(rows: Iterable[Row]) -> list[str]:
    return sorted({row.session for row in rows if row.main_line})


def tool_outputs(exchanges: Iterable[Exchange]) -> list[str]:
    """Outputs of `exec` calls that came back from the client, in order."""
    outputs: list[str] = []
    for exchange in exchanges:
        last = exchange.history[-1] if exchange.history else {}
        if last.get("type") == "function_call_output" and "exec" in tool_names(exchange.body):
            calls = {item.get("call_id"): item.get("name") for item in exchange.history}
            if calls.get(last.get("call_id")) in ("exec", None):
                outputs.append(str(last.get("output")))
    return outputs


def _item(item: Mapping[str, Any]) -> str:
    if item.get("type") == "function_call":
        return f"call {item.get('call_id')} {item.get('name')} {item.get('arguments')}"
    if item.get("type") == "function_call_output":
        return f"output {item.get('call_id')} {item.get('output')}"
    return f"{item.get('type', 'message')} {item.get('role')} {text_of(item)}"


def _shared(text: str, before: Exchange | None) -> int:
    """Characters in common with the last main-line request and its answer."""
    if before is None:
        return 0
    answered = [*before.history, *before.response.get("output", [])]
    return len(commonprefix([text, head_of(before.body, before.history) + flat(answered)]))


def _compacted(history: Sequence[Mapping[str, Any]]) -> bool:
    return any(COMPACTED in text_of(item) for item in history[:4])


def _text(value: object) -> str | None:
    return None if value is None else str(value)
