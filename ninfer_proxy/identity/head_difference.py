"""Where two heads first differ, told to a person: tools, then instructions and system items. Knows texts, not conversations."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from ninfer_proxy.compared import Difference, HeadText, Unsteady
from ninfer_proxy.identity.compare import common_prefix
from ninfer_proxy.identity.volatile import volatile_at, without_attribution
from ninfer_proxy.types import Item, MessageItem, ToolSpec
from ninfer_proxy.wording import agreeing

AROUND = 24
_NAMES_SHOWN = 3
_DATE_REACH = 80
_VERBS = {"description": "differs", "parameters": "differ"}
_DATE = re.compile(r"\b\d{4}-\d{2}-\d{2}\b|\b(?:date|today)\b", re.IGNORECASE)
_DATE_HINT = "a date in the instructions changes each day"


def tools_differ(before: Sequence[ToolSpec], now: Sequence[ToolSpec]) -> Difference:
    """The first tool that came, went or changed; order doesn't count."""
    known = {tool.name: tool for tool in before}
    sent = {tool.name: tool for tool in now}
    gone = [name for name in known if name not in sent]
    came = [name for name in sent if name not in known]
    if gone or came:
        told = " and ".join(
            f"{_some(names)} {agreeing(len(names), 'was', 'were')} {verb}"
            for names, verb in ((came, "added"), (gone, "taken away"))
            if names
        )
        at = f"tools[{list(sent).index(came[0])}]" if came else "tools"
        return Difference(at, f"the tools differ: {told} ({len(before)} before, {len(now)} now)")
    for index, tool in enumerate(now):
        for field, old, new in _fields(known[tool.name], tool):
            if old != new:
                place = common_prefix(old, new)
                return Difference(
                    f"tools[{index}].{field}:{place}",
                    f"the {field} of tool {tool.name} {_VERBS[field]} at character {place}: "
                    f"{was_is(old, new, place)}",
                )
    return Difference("tools", "the tools differ")


def instructions_differ(before: HeadText, now: HeadText) -> Difference:
    """The first character of instructions and system items that is another one; attribution lines don't count."""
    old, new = _texts(before), _texts(now)
    if [name for name, _ in old] != [name for name, _ in new]:
        old, new = ([("instructions", "\n".join(text for _, text in each))] for each in (old, new))
    for (name, was), (_, text) in zip(old, new, strict=True):
        if was == text:
            continue
        place = common_prefix(was, text)
        subject = (
            "the instructions differ" if name == "instructions" else f"{name} (system) differs"
        )
        told = f"{subject} at character {place}: {was_is(was, text, place)}"
        hint = _hint(was, text, place)
        return Difference(f"{name}:{place}", f"{told} ({hint})" if hint else told)
    return Difference("instructions", "the instructions differ")


def respelled(before: HeadText, now: HeadText) -> Difference | None:
    """Where heads that mean the same are written otherwise: another order of tools or of their keys, an attribution line."""
    if (tools := tools_respelled(before.tools, now.tools)) is not None:
        return tools
    for (name, was), (_, text) in zip(_all_texts(before), _all_texts(now), strict=False):
        if was != text:
            place = common_prefix(was, text)
            told = f"a line that accounts for the client differs: {was_is(was, text, place)}"
            hint = _hint(was, text, place) or _setting(Unsteady.ATTRIBUTION)
            return Difference(f"{name}:{place}", f"{told} ({hint})")
    return None


def tools_respelled(before: Sequence[ToolSpec], now: Sequence[ToolSpec]) -> Difference | None:
    """Where the same tools stand in another order, or their keys do."""
    names, others = ([tool.name for tool in each] for each in (before, now))
    if names != others and len(names) == len(others):
        at = common_prefix(names, others)
        told = f"the tools stand in another order: tools[{at}] was {names[at]}, is {others[at]}"
        return Difference(f"tools[{at}]", f"{told} ({_setting(Unsteady.TOOL_ORDER)})")
    for index, (was, tool) in enumerate(zip(before, now, strict=False)):
        old, new = (json.dumps(each.parameters, ensure_ascii=False) for each in (was, tool))
        if old != new:
            place = common_prefix(old, new)
            told = f"the keys in the parameters of tool {tool.name} stand in another order"
            return Difference(
                f"tools[{index}].parameters:{place}", f"{told} ({_setting(Unsteady.TOOL_KEYS)})"
            )
    return None


def first_change(before: HeadText, now: HeadText) -> tuple[str, float] | None:
    """Which part of the head is spelled otherwise first ("tools", "instructions" or "input[i]"), and behind what share of it."""
    old_tools, new_tools = (list(map(repr, each.tools)) for each in (before, now))
    if old_tools != new_tools:
        return "tools", common_prefix(old_tools, new_tools) / max(1, len(new_tools))
    old, new = dict(_all_texts(before)), dict(_all_texts(now))
    for name in {**new, **old}:
        was, text = old.get(name, ""), new.get(name, "")
        if was != text:
            return name, common_prefix(was, text) / max(1, len(text))
    return None


def was_is(before: str, now: str, at: int) -> str:
    return f"was “{_near(before, at)}”, is “{_near(now, at)}”"


def _fields(before: ToolSpec, now: ToolSpec) -> Iterator[tuple[str, str, str]]:
    yield "description", before.description or "", now.description or ""
    yield "parameters", _json(before.parameters), _json(now.parameters)


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _texts(head: HeadText) -> list[tuple[str, str]]:
    return [(name, text) for name, each in _all_texts(head) if (text := without_attribution(each))]


def _all_texts(head: HeadText) -> list[tuple[str, str]]:
    named = [("instructions", head.instructions)] if head.instructions else []
    return [*named, *((f"input[{i}]", _text(item)) for i, item in enumerate(head.leading))]


def _text(item: Item) -> str:
    return item.text if isinstance(item, MessageItem) else ""


def _hint(before: str, now: str, at: int) -> str:
    """What can be done about a difference there: where a clock, a date or an attribution line stands."""
    volatile = volatile_at(now, at) or volatile_at(before, at)
    if volatile is None:
        line = now[max(0, now.rfind("\n", 0, at), at - _DATE_REACH) : at + AROUND]
        return _DATE_HINT if _DATE.search(line) else ""
    return "; ".join(filter(None, (volatile.hint, _setting(volatile.kind))))


def _setting(kind: Unsteady) -> str:
    return f'[identity] stabilise = ["{kind}"] would keep it the same for the engine'


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _near(text: str, at: int) -> str:
    """The text around a place, on one line."""
    start, end = max(0, at - AROUND), at + AROUND
    near = " ".join(text[start:end].split())
    return f"{'…' if start else ''}{near}{'…' if end < len(text) else ''}"
