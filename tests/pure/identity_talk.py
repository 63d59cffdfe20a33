"""A client that talks to the line store, and items in short, for the identity tests."""

from collections.abc import Mapping, Sequence
from typing import Any

from replaying import Lines

from ninfer_proxy.items import item_from_raw
from ninfer_proxy.types import (
    ClientEvidence,
    ConversationId,
    Item,
    LineRole,
    Match,
    MatchKind,
    ResponseId,
    TenantKey,
    ToolSpec,
    Turn,
)

AGENT = "You help with a small code base."
TOOLS = tuple(ToolSpec(name, None, {}) for name in ("read", "run"))
SESSION = {"session-id": "s1"}
CONTINUES, NEW = (MatchKind.CONTINUES, LineRole.MAIN), (MatchKind.NEW, LineRole.MAIN)
SIDE, FORKS = (MatchKind.SIDE, LineRole.SIDE), (MatchKind.FORKS, LineRole.MAIN)


def user(text: str) -> Item:
    return item_from_raw({"type": "message", "role": "user", "content": text})


def said(text: str) -> Item:
    return item_from_raw({"type": "message", "role": "assistant", "content": text})


def call(call_id: str, arguments: str = "{}") -> Item:
    raw = {"type": "function_call", "call_id": call_id, "name": "run", "arguments": arguments}
    return item_from_raw(raw)


def output(call_id: str, text: str) -> Item:
    return item_from_raw({"type": "function_call_output", "call_id": call_id, "output": text})


def turn(
    *items: Item,
    headers: Mapping[str, str] | None = None,
    instructions: str | None = AGENT,
    tools: Sequence[ToolSpec] = TOOLS,
    previous: str | None = None,
    **client: Any,
) -> Turn:
    return Turn(
        tenant=TenantKey("t"),
        client=ClientEvidence(headers=headers or {}, **client),
        model="demo",
        items=items,
        received_at=0.0,
        instructions=instructions,
        tools=tuple(tools),
        previous_response_id=ResponseId(previous) if previous else None,
    )


class Talk:
    """A client that asks and is answered, with the store behind it."""

    def __init__(self) -> None:
        self.store = Lines()

    def ask(
        self, request: Turn, *answer: Item, response: str | None = None
    ) -> tuple[ConversationId, Match]:
        """The conversation that this finished turn went to, and its match."""
        items, identity, match = self.store.match(request)
        conversation = self.store.commit(
            response, items, identity, match, answer or (said(f"answer {self.store.clock}"),)
        )
        return conversation, match


def told(match: Match) -> tuple[MatchKind, LineRole]:
    return match.kind, match.role
