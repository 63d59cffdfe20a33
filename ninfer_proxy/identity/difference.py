"""Where a request first differs from the stored line, told to a person. Knows items and client hints; decides nothing."""

from collections.abc import Sequence

from ninfer_proxy.compared import Difference, HeadText
from ninfer_proxy.identity.canonical import counted_text, digests, head_length
from ninfer_proxy.identity.clients import appended_hint
from ninfer_proxy.identity.compare import common_prefix
from ninfer_proxy.identity.head_difference import instructions_differ, tools_differ, was_is
from ninfer_proxy.types import (
    Divergence,
    FunctionCallItem,
    FunctionOutputItem,
    Item,
    Match,
    MessageItem,
)


def describe(
    stored: Sequence[Item],
    items: Sequence[Item],
    match: Match,
    before: HeadText | None,
    now: HeadText,
) -> Difference | None:
    """The first difference, with what a client setting could do; None where nothing differs.

    `stored` are the items of the line that was compared (`match.compared_with`), `items` the request's whole history; `before`
    is that line's last head, None where it isn't known any more.
    """
    if "tools" in match.head_changed:
        return tools_differ(before.tools, now.tools) if before else _untold("tools")
    if match.head_changed:
        return instructions_differ(before, now) if before else _untold("instructions")
    return _divergence(stored, items, match.divergence) if match.divergence else None


def _untold(part: str) -> Difference:
    return Difference(part, f"the {part} differ")


def _divergence(stored: Sequence[Item], items: Sequence[Item], at: Divergence) -> Difference:
    before = _counted(stored)[at.stored_index :][:2]
    old = before[0] if before else None
    place = f"input[{len(items) if at.item_index is None else at.item_index}]"
    if at.transient and old is not None:
        hint = appended_hint(counted_text(old))
        gone = f"{_name(old)} was in the last request and is gone; what followed it is still there"
        if len(before) == 1:
            gone = f"{_name(old)} ended the last request and comes again behind what is new"
        return Difference(place, f"{gone} ({hint})" if hint else gone)
    if at.item_index is None:
        what = f"before {_name(old)}" if old else "earlier"
        return Difference(place, f"the request ends {what}")
    new = items[at.item_index]
    if old is None:
        return Difference(place, f"item {at.item_index} is {_name(new)}")
    if type(old) is not type(new) or _kind(old) != _kind(new):
        return Difference(place, f"item {at.item_index} was {_name(old)} and is {_name(new)}")
    was, text = counted_text(old), counted_text(new)
    differs = f"item {at.item_index} ({_kind(new)}) differs"
    if was == text:
        beside = (
            "the call it answers" if isinstance(new, FunctionOutputItem) else "an image or file"
        )
        return Difference(place, f"{differs} in {beside}, not in its text")
    character = common_prefix(was, text)
    return Difference(
        f"{place}:{character}",
        f"{differs} at character {character}: {was_is(was, text, character)}",
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


def _name(item: Item) -> str:
    text = " ".join(counted_text(item).split())
    return f"the {_kind(item)} “{text[:40]}{'…' if len(text) > 40 else ''}”"
