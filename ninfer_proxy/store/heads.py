"""What stood before the conversation in a stored response's prompt, for explanations. Knows responses, fragments and items."""

from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import Any

from sqlalchemy import Connection, select

from ninfer_proxy.compared import HeadText
from ninfer_proxy.items import NO_PARAMETERS, SYSTEM_ROLES
from ninfer_proxy.store import items
from ninfer_proxy.store.codec import decode_list
from ninfer_proxy.store.responses import fragment_of
from ninfer_proxy.store.tables import responses
from ninfer_proxy.types import Item, MessageItem, ResponseId, ToolSpec

MOST_ITEMS = 32
"""Of a prompt's first items so many are looked at; heads have one to three."""


def head_text(connection: Connection, response: ResponseId) -> HeadText | None:
    """The head as it was sent, also where its client didn't want the response stored; None if unknown or deleted."""
    row = connection.execute(
        select(responses).where(responses.c.id == response, ~responses.c.deleted)
    ).one_or_none()
    if row is None:
        return None
    first = items.read_items(connection, row.conversation, decode_list(row.prompt)[:MOST_ITEMS])
    return HeadText(
        instructions=fragment_of(connection, row, "instructions"),
        tools=_functions(fragment_of(connection, row, "tools") or ()),
        leading=tuple(takewhile(_is_system, (each.item for each in first))),
    )


def _functions(tools: Iterable[Mapping[str, Any]]) -> tuple[ToolSpec, ...]:
    return tuple(
        ToolSpec(tool["name"], tool.get("description"), tool.get("parameters") or NO_PARAMETERS)
        for tool in tools
        if tool.get("type") == "function"
    )


def _is_system(item: Item) -> bool:
    return isinstance(item, MessageItem) and item.role in SYSTEM_ROLES
