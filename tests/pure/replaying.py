"""Recorded requests of real clients, replayed through wire parsing and identity against a line store in memory."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

from ninfer_proxy.http.wire_chat import parse_chat
from ninfer_proxy.http.wire_common import IDENTITY_HEADERS, WireDefaults
from ninfer_proxy.http.wire_responses import parse_create
from ninfer_proxy.identity.canonical import digests, head_length
from ninfer_proxy.identity.compare import common_prefix
from ninfer_proxy.identity.resolve import identify, resolve
from ninfer_proxy.identity.sight import is_output
from ninfer_proxy.items import item_from_raw
from ninfer_proxy.types import (
    ClientEvidence,
    ConversationId,
    FunctionCallItem,
    FunctionOutputItem,
    Identity,
    Item,
    ItemDigest,
    ItemReference,
    Match,
    ResponseId,
    StoredLine,
    TenantKey,
    ToolSpec,
    Turn,
)
from tests import recordings


@dataclass(frozen=True, slots=True)
class Row:
    """One recorded request. `output` None: the recording doesn't hold it."""

    n: int
    turn: Turn
    answered: bool
    response_id: str | None
    output: tuple[Item, ...] | None
    generates: bool = True


@dataclass(slots=True)
class Lines:
    """What a store would hold: lines, responses with their whole history, ids given out."""

    lines: dict[ConversationId, StoredLine] = field(default_factory=dict)
    responses: dict[str, tuple[ConversationId, tuple[Item, ...]]] = field(default_factory=dict)
    given_out: dict[str, ConversationId] = field(default_factory=dict)
    clock: float = 0.0

    def match(self, turn: Turn) -> tuple[tuple[Item, ...], Identity, Match]:
        """The turn's whole history, identity and match."""
        stored: tuple[Item, ...] = ()
        parent = None
        if turn.previous_response_id is not None:
            parent, stored = self.responses[turn.previous_response_id]
        items = (*stored, *without_repeats(stored, turn.items))
        identity = identify(turn, items)
        ids = {str(item.raw.get(name)) for item in turn.items for name in ("id", "call_id")}
        minted = tuple(dict.fromkeys(self.given_out[each] for each in ids & self.given_out.keys()))
        found = self._candidates(identity, {*minted, *([parent] if parent else [])})
        above = self.lines[parent] if parent else None
        return items, identity, resolve(turn, identity, found, above, minted)

    def commit(
        self,
        response: str | None,
        items: Sequence[Item],
        identity: Identity,
        match: Match,
        output: Sequence[Item],
    ) -> ConversationId:
        """Store a finished turn; the line's conversation."""
        self.clock += 1
        whole = (*items, *output)
        conversation = match.conversation or ConversationId(f"c{len(self.lines) + 1}")
        before = self.lines.get(conversation)
        self.lines[conversation] = StoredLine(
            conversation=conversation,
            scope=identity.scope or (before.scope if before else ""),
            role=match.role,
            family=identity.family,
            head=identity.head,
            chain=(*identity.chain, *(each for each in digests(output) if each is not None)),
            tip_response=ResponseId(response) if response else None,
            last_used_at=self.clock,
            parent=match.parent,
            side_kind=match.side_kind,
        )
        if response:
            self.responses[response] = (conversation, whole)
        for item in output:
            for name in ("id", "call_id"):
                if item.raw.get(name):
                    self.given_out[str(item.raw[name])] = conversation
        return conversation

    def running(self, conversation: ConversationId, turns: int) -> None:
        self.lines[conversation] = replace(self.lines[conversation], in_flight=turns)

    def _candidates(self, identity: Identity, named: set[ConversationId]) -> tuple[StoredLine, ...]:
        opening = next(iter(identity.chain), None)
        return tuple(
            line
            for line in self.lines.values()
            if (identity.scope and line.scope == identity.scope)
            or (opening is not None and line.chain[:1] == (opening,))
            or line.conversation in named
        )


def replay(recording: str) -> dict[str, str]:
    """What identity makes of each request of a recording: its number and a line to read, with conversations c1, c2, ... as
    they appear.
    """
    return {str(row.n): line for row, line in told(recorded(recording))}


def told(rows: Sequence[Row]) -> Iterator[tuple[Row, str]]:
    """Each row of one store's life with a line to read."""
    store = Lines()
    for index, row in enumerate(rows):
        items, identity, match = store.match(row.turn)
        output = row.output
        if output is None:
            output = told_later(items, rows[index + 1 :]) if row.generates else ()
        conversation = match.conversation or ConversationId(f"c{len(store.lines) + 1}")
        if row.answered:
            store.commit(row.response_id, items, identity, match, output)
        yield row, summary(identity, match, conversation)


def summary(identity: Identity, match: Match, conversation: ConversationId) -> str:
    gone = match.divergence is not None and match.divergence.transient
    facts = {
        f"side={match.side_kind}": match.side_kind,
        f"of={match.parent}": match.parent,
        f"changed={','.join(match.head_changed)}": match.head_changed,
        "transient": gone,
        "diverged": match.divergence is not None and not gone,
        "compacted": match.compacted,
        "subagent": identity.is_subagent,
    }
    words = (conversation, match.role.value, match.kind.value, *(k for k, v in facts.items() if v))
    return f"{' '.join(words)} [{identity.family} {identity.scope or '-'}]"


def without_repeats(stored: Sequence[Item], sent: Sequence[Item]) -> Iterator[Item]:
    """What is new of the items sent behind a previous response: clients repeat the calls they answer."""
    calls = {item.call_id for item in stored if isinstance(item, FunctionCallItem)}
    for item in sent:
        repeated = isinstance(item, FunctionCallItem) and item.call_id in calls
        if not repeated and not isinstance(item, ItemReference):
            yield item


def told_later(items: Sequence[Item], later: Sequence[Row]) -> tuple[Item, ...]:
    """The answer to a request, as a later request of the same recording brings it back; else some text."""
    mine = counted(items)
    for row in later:
        if row.turn.previous_response_id is not None:
            break
        answer = answer_behind(mine, row.turn.items)
        if answer:
            return answer
    calls = [
        FunctionCallItem(item.call_id, "f", "{}", {"call_id": item.call_id})
        for row in later[:1]
        for item in row.turn.items
        if isinstance(item, FunctionOutputItem) and row.turn.previous_response_id
    ]
    return (*calls,) or (item_from_raw(message("assistant", "an answer nobody brought back")),)


def answer_behind(mine: Sequence[ItemDigest], items: Sequence[Item]) -> tuple[Item, ...]:
    """What a model said in `items` right behind the part that they have in common with `mine`."""
    behind_head = list(zip(items, digests(items), strict=True))[head_length(items) :]
    theirs = [(item, each) for item, each in behind_head if each]
    same = common_prefix(mine, [each for _, each in theirs])
    behind = [item for item, _ in theirs[same:]]
    return tuple(takewhile(is_output, behind)) if same else ()


def counted(items: Sequence[Item]) -> list[ItemDigest]:
    """The digests behind the head: a job on the side brings an answer back under another one."""
    return [each for each in digests(items)[head_length(items) :] if each is not None]


def message(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


# --- recordings --------------------------------------------------------------------------------


def recorded(recording: str) -> list[Row]:
    return list(_with_ids(_rows(recordings.rows(recording))))


def recorded_day() -> list[tuple[str, Row]]:
    """All requests of OpenClaw in the order they came, each with its recording's name: one client's life over one store.

    The recording server was started several times and counted anew each time, so its ids are told apart by its start.
    """
    listed = []
    for start, names in enumerate(STARTS):
        for name in names:
            rows = (_at_start(raw, start) for raw in recordings.rows(f"openclaw/{name}"))
            listed += [(raw["t"], name, row) for raw, row in _with_raw(rows)]
    return [(name, row) for _, name, row in sorted(listed, key=lambda each: each[0])]


STARTS = (
    ("a_nocont",),
    (
        *("b_cont", "b2_cont_ids", "d_interleaved", "c_tools_reasoning"),
        *("f1_http500", "f2_prev_not_found", "f3_abort"),
    ),
    (
        *("f4_compaction", "f5_heartbeat", "f6_subagent", "f7_chat_title", "f8_autocompact"),
        *("g_openai_provider", "g2_openai_heartbeat", "g3_custom_instructions"),
        *("e_completions", "h_sse_variants"),
    ),
    ("g4_idle_ttl",),
    ("c2_parallel", "g5_openai_misc", "c3_reasoning_model", "g6_recommended"),
)
"""The recordings that were made between two starts of the recording server."""


def _at_start(raw: dict[str, Any], start: int) -> dict[str, Any]:
    text = re.sub(r"(resp_mock|call_?)(0\d{5})", rf"\g<1>{start}\g<2>", json.dumps(raw))
    return dict(json.loads(text))


def _with_raw(rows: Iterable[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], Row]]:
    for raw in rows:
        yield raw, next(_rows([raw]))


def _rows(raws: Iterable[dict[str, Any]]) -> Iterator[Row]:
    opened: dict[str, str] = {}
    for raw in raws:
        headers = {name.lower(): value for name, value in raw["headers"]}
        if raw.get("kind") == "ws-open":
            opened = headers
            continue
        body = raw.get("body")
        if isinstance(body, dict):
            yield row_of(raw, body, opened | headers)


def row_of(raw: Mapping[str, Any], body: dict[str, Any], headers: dict[str, str]) -> Row:
    reply = raw.get("reply") or {}
    output = reply.get("output")
    if raw.get("client_disconnected"):
        # What a client has broken off it doesn't bring back, so it is no part of the line.
        output = []
    known = {
        "headers": headers,
        "tenant": TenantKey("t"),
        "now": 0.0,
        "defaults": WireDefaults("demo"),
    }
    if raw["path"].startswith("/v1/messages"):
        turn = messages_turn(body, headers)
    elif raw["path"] == "/v1/chat/completions":
        turn = parse_chat(body, **known).turn
    else:
        turn = parse_create(body, **known)
    return Row(
        n=raw["n"],
        turn=turn,
        answered=reply.get("status", 200) == 200,
        response_id=reply.get("response_id"),
        output=tuple(map(item_from_raw, output)) if isinstance(output, list) else None,
        generates=body.get("generate") is not False,
    )


def _with_ids(rows: Iterator[Row]) -> Iterator[Row]:
    """Recordings without replies: what a request calls the previous response is the id of the latest one before it that hasn't
    the same outputs already.
    """
    listed = list(rows)
    for index, row in enumerate(listed):
        wanted = row.turn.previous_response_id
        if wanted is None or any(each.response_id == wanted for each in listed):
            continue
        for earlier in range(index - 1, -1, -1):
            if not outputs(listed[earlier]) & outputs(row):
                listed[earlier] = replace(listed[earlier], response_id=wanted)
                break
    return iter(listed)


def outputs(row: Row) -> set[str]:
    return {item.call_id for item in row.turn.items if isinstance(item, FunctionOutputItem)}


def messages_turn(body: Mapping[str, Any], headers: Mapping[str, str]) -> Turn:
    """A request of the Messages API, as far as identity looks at it."""
    items: list[dict[str, Any]] = []
    for entry in body["messages"]:
        content = entry["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        items.extend(_messages_items(entry["role"], parts))
    system = body.get("system") or []
    return Turn(
        tenant=TenantKey("t"),
        client=ClientEvidence(
            headers={name: value for name, value in headers.items() if name in IDENTITY_HEADERS},
            user_agent=headers.get("user-agent", ""),
            metadata=body.get("metadata") or {},
        ),
        model=body["model"],
        items=tuple(map(item_from_raw, items)),
        received_at=0.0,
        instructions="\n".join(part["text"] for part in system),
        tools=tuple(
            ToolSpec(tool["name"], tool.get("description"), tool.get("input_schema") or {})
            for tool in body.get("tools") or []
        ),
    )


def _messages_items(role: str, parts: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    text = "".join(part["text"] for part in parts if part["type"] == "text")
    if text:
        yield message(role, text)
    for part in parts:
        if part["type"] == "tool_use":
            arguments = json.dumps(part["input"])
            yield {"type": "function_call", "call_id": part["id"], "name": part["name"]} | {
                "arguments": arguments
            }
        if part["type"] == "tool_result":
            yield {"type": "function_call_output", "call_id": part["tool_use_id"]} | {
                "output": part["content"]
            }
