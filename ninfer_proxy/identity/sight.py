"""What a request shows of its sender: headers, body fields and the texts that clients sign. Knows no client."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ninfer_proxy.items import SYSTEM_ROLES
from ninfer_proxy.types import FunctionCallItem, Item, MessageItem, Turn


@dataclass(frozen=True, slots=True)
class Sight:
    """`system` joins instructions and leading system items; `opening` is the first user message; `asked` the last one that its
    sender's family doesn't append by itself. `answered` tells that the history holds output of a model.
    """

    headers: Mapping[str, str]
    user_agent: str
    cache_key: str | None
    user: str | None
    metadata: Mapping[str, Any]
    system: str
    opening: str
    asked: str
    answered: bool
    tools: frozenset[str]


def look(
    turn: Turn, items: Sequence[Item], head_items: int, appended: Callable[[str], bool]
) -> Sight:
    """The sight of a turn over its whole history; `appended` tells the user messages that a client adds by itself."""
    client = turn.client
    users = [item.text for item in items if isinstance(item, MessageItem) and item.role == "user"]
    asked = next((text for text in reversed(users) if not appended(text)), "")
    return Sight(
        headers=client.headers,
        user_agent=client.user_agent,
        cache_key=client.prompt_cache_key,
        user=client.user,
        metadata=client.metadata,
        system="\n".join(
            [
                turn.instructions or "",
                *(item.text for item in items[:head_items] if isinstance(item, MessageItem)),
            ]
        ).strip(),
        opening=users[0] if users else "",
        asked=asked,
        answered=any(is_output(item) for item in items),
        tools=frozenset(tool.name for tool in turn.tools),
    )


def is_output(item: Item) -> bool:
    """Did a model say this, as far as identity counts it?"""
    if isinstance(item, MessageItem):
        return item.role == "assistant" and bool(item.text.strip())
    return isinstance(item, FunctionCallItem)


def is_user_message(item: Item) -> bool:
    return isinstance(item, MessageItem) and item.role not in (*SYSTEM_ROLES, "assistant")


def found(pattern: re.Pattern[str], text: str, reach: int = 2000) -> bool:
    """Is the pattern in the text's beginning? Client marks stand there, and texts may be megabytes."""
    return pattern.search(text, 0, reach) is not None
