"""What a request shows of its client's habits: which items of the last one it takes back. Pure; knows items, decides nothing."""

from collections.abc import Sequence

from ninfer_proxy.habits import MOST_BACK, Place, Seen
from ninfer_proxy.prompt import is_assistant
from ninfer_proxy.types import (
    FunctionOutputItem,
    Item,
    LineRole,
    Match,
    MatchKind,
    MessageItem,
)


def observed(match: Match, stored: Sequence[Item], items: Sequence[Item]) -> Seen:
    """What the request with the history `items` shows, against `stored`, the line's counted items (needed where they differ).

    An item counts as kept once a user goes on and it's still there: within a tool loop it may yet be taken back. Where a user
    edits, what followed the item is gone as well, and that is no habit of the client.
    """
    goes_on = match.kind is MatchKind.CONTINUES and match.role is LineRole.MAIN
    if not goes_on or match.head_changed or match.compacted:
        return {}
    at = match.divergence
    if at is None:
        new = items[match.known_items :]
        asked = any(map(_is_user, new))
        return dict.fromkeys(_asked_places(items[: match.known_items]), False) if asked else {}
    what_follows_stays = at.item_index is not None and at.item_index < match.known_items
    if not (at.transient or what_follows_stays) or at.stored_index >= len(stored):
        return {}
    place = _place(stored, at.stored_index)
    return {} if place is None else {place: True}


def _asked_places(items: Sequence[Item]) -> tuple[Place, ...]:
    """The places of what was sent together with the last user message."""
    last = next((i for i in range(len(items) - 1, -1, -1) if _is_user(items[i])), None)
    if last is None:
        return ()
    first = last
    while first > 0 and not is_assistant(items[first - 1]):
        first -= 1
    places = (_place(items, index) for index in range(first, _end(items, last)))
    return tuple(place for place in places if place is not None)


def _place(items: Sequence[Item], index: int) -> Place | None:
    """The place of an item in the prompt that brought it, which ended before the next answer; None for answers."""
    role = _role(items[index])
    back = sum(1 for item in items[index : _end(items, index)] if _role(item) is not None)
    return None if role is None or back > MOST_BACK else Place(role, back)


def _end(items: Sequence[Item], index: int) -> int:
    """Where the first answer behind an item stands."""
    behind = range(index, len(items))
    return next((each for each in behind if is_assistant(items[each])), len(items))


def _role(item: Item) -> str | None:
    """The role of its message in a prompt; None for what has none there, and for answers."""
    if isinstance(item, FunctionOutputItem):
        return "tool"
    return item.role if isinstance(item, MessageItem) and item.role != "assistant" else None


def _is_user(item: Item) -> bool:
    return isinstance(item, MessageItem) and item.role == "user"
