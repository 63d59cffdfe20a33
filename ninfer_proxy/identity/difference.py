"""Where a request first differs from the stored line, told to a person. Knows items and client hints; decides nothing."""

import re
from collections.abc import Sequence

from ninfer_proxy.identity.canonical import digests, head_length, without_attribution
from ninfer_proxy.identity.clients import appended_hint, side_hint
from ninfer_proxy.identity.compare import common_prefix
from ninfer_proxy.types import (
    FunctionCallItem,
    FunctionOutputItem,
    Item,
    LineRole,
    Match,
    MessageItem,
)

_AROUND = 24
_CLOCK = re.compile(
    r"\d{1,2}:\d{2}|\b\d{4}-\d{2}-\d{2}|\b(?:time|date|today|clock)\b", re.IGNORECASE
)
_CLOCK_HINT = "a clock or date in the instructions; moving it to the last message keeps the rest"


def describe(
    stored: Sequence[Item],
    items: Sequence[Item],
    match: Match,
    *,
    stored_instructions: str | None = None,
    instructions: str | None = None,
) -> str | None:
    """One sentence on the first difference, with what a client setting could do; None where nothing differs.

    `stored` are the items of the line that was compared (`match.compared_with`), `items` the request's, both whole. The
    instructions are those sent beside the items; where the stored ones aren't known, give neither.
    """
    found: str | None = None
    if "instructions" in match.head_changed:
        found = _instructions(
            _head_text(stored_instructions, stored), _head_text(instructions, items)
        )
    elif match.head_changed:
        found = "the tools differ"
    elif match.divergence is not None:
        found = _divergence(stored, items, match)
    if found is None or match.role is LineRole.MAIN:
        return found
    hint = side_hint(match.side_kind or "")
    return f"{found} ({hint})" if hint else found


def _head_text(instructions: str | None, items: Sequence[Item]) -> str:
    leading = [item.text for item in items[: head_length(items)] if isinstance(item, MessageItem)]
    return without_attribution("\n".join([*([instructions] if instructions else []), *leading]))


def _instructions(before: str, now: str) -> str:
    if before == now:
        return "the instructions differ"
    at = common_prefix(before, now)
    line = now[now.rfind("\n", 0, at) + 1 : at + _AROUND]
    hint = f" ({_CLOCK_HINT})" if _CLOCK.search(line) else ""
    return f"the instructions differ at character {at}: {_was_is(before, now, at)}{hint}"


def _divergence(stored: Sequence[Item], items: Sequence[Item], match: Match) -> str:
    assert match.divergence is not None
    before = _counted(stored)[match.divergence.stored_index :][:1]
    old = before[0] if before else None
    if match.divergence.transient and old is not None:
        hint = appended_hint(_text(old))
        gone = f"{_name(old)} was in the last request and is gone; what followed it is still there"
        return f"{gone} ({hint})" if hint else gone
    at = match.divergence.item_index
    if at is None:
        return f"the request ends before {_name(old)}" if old else "the request ends earlier"
    new = items[at]
    if old is None:
        return f"item {at} is {_name(new)}"
    if type(old) is not type(new) or _kind(old) != _kind(new):
        return f"item {at} was {_name(old)} and is {_name(new)}"
    place = common_prefix(_text(old), _text(new))
    return (
        f"item {at} ({_kind(new)}) differs at character {place}: "
        f"{_was_is(_text(old), _text(new), place)}"
    )


def _counted(stored: Sequence[Item]) -> list[Item]:
    """The line's items behind its head that identity counts."""
    behind = list(zip(stored, digests(stored), strict=True))[head_length(stored) :]
    return [item for item, digest in behind if digest is not None]


def _kind(item: Item) -> str:
    if isinstance(item, MessageItem):
        return f"{item.role} message"
    if isinstance(item, FunctionCallItem):
        return f"call of {item.name}"
    return "tool output" if isinstance(item, FunctionOutputItem) else "item"


def _text(item: Item) -> str:
    if isinstance(item, MessageItem | FunctionOutputItem):
        return item.text
    return item.arguments if isinstance(item, FunctionCallItem) else ""


def _name(item: Item) -> str:
    text = " ".join(_text(item).split())
    return f"the {_kind(item)} “{text[:40]}{'…' if len(text) > 40 else ''}”"


def _was_is(before: str, now: str, at: int) -> str:
    return f"was “{_near(before, at)}”, is “{_near(now, at)}”"


def _near(text: str, at: int) -> str:
    """The text around a place, on one line."""
    start, end = max(0, at - _AROUND), at + _AROUND
    near = " ".join(text[start:end].split())
    return f"{'…' if start else ''}{near}{'…' if end < len(text) else ''}"
