"""Steady heads for clients whose heads change by themselves: what the engine gets instead of what was sent. Knows no conversation.

Nothing is changed that isn't asked for (`[identity] stabilise`), and nothing behind the head:

attribution   lines such as `x-anthropic-billing-header: …` are left out of system text
clock         times of day in sentences that tell the time become `--:--`; the date stays
tool_order    tools stand in order of their names
tool_keys     keys in tools' parameters stand in order

What is stored and shown to clients stays what was sent; only the prompt and what identity compares are steady.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ninfer_proxy.compared import HeadText, Unsteady
from ninfer_proxy.identity.canonical import head_length
from ninfer_proxy.identity.volatile import Rewrite, steadied
from ninfer_proxy.types import Item, MessageItem, ToolSpec, Turn
from ninfer_proxy.wording import counted

_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Steady:
    """A turn and its whole history with a steady head. `sent` is the head as it came; `changes` says what was changed in it."""

    turn: Turn
    items: tuple[Item, ...]
    sent: HeadText
    changes: tuple[str, ...] = ()

    @property
    def head(self) -> HeadText:
        return head_text(self.turn, self.items)


def stabilise(turn: Turn, items: tuple[Item, ...], kinds: Collection[Unsteady]) -> Steady:
    """The turn with what is of these kinds steady in its tools, instructions and leading system items."""
    sent = head_text(turn, items)
    head, changes = steady_head(sent, kinds)
    if not changes:
        return Steady(turn, items, sent)
    steady = replace(turn, tools=head.tools, instructions=head.instructions)
    return Steady(steady, (*head.leading, *items[len(head.leading) :]), sent, changes)


def head_text(turn: Turn, items: Sequence[Item]) -> HeadText:
    return HeadText(turn.instructions, turn.tools, tuple(items[: head_length(items)]))


def steady_head(head: HeadText, kinds: Collection[Unsteady]) -> tuple[HeadText, tuple[str, ...]]:
    """The head with what is of these kinds steady, and what was changed, a sentence each."""
    if not kinds:
        return head, ()
    tools, changes = steady_tools(head.tools, kinds)
    instructions, rewrites = steadied(head.instructions or "", kinds)
    changes += _told(rewrites, "the instructions")
    leading: list[Item] = []
    for index, item in enumerate(head.leading):
        assert isinstance(item, MessageItem)
        text, rewrites = steadied(item.text, kinds)
        changes += _told(rewrites, f"item {index}")
        leading.append(replace(item, text=text))
    return HeadText(instructions or None, tools, tuple(leading)), changes


def steady_tools(
    tools: Sequence[ToolSpec], kinds: Collection[Unsteady]
) -> tuple[tuple[ToolSpec, ...], tuple[str, ...]]:
    """The tools in steady order and spelling, and what was changed."""
    changes: tuple[str, ...] = ()
    steady = tuple(tools)
    if Unsteady.TOOL_KEYS in kinds:
        steady = tuple(replace(tool, parameters=_in_order(tool.parameters)) for tool in tools)
        # Equal mappings may have other orders, so the spelling is compared.
        moved = [
            tool.name
            for tool, sent in zip(steady, tools, strict=True)
            if repr(tool.parameters) != repr(sent.parameters)
        ]
        if moved:
            schemas = f"parameters of {counted(len(moved), 'tool')} ({_some(moved)})"
            changes += (f"{Unsteady.TOOL_KEYS}: keys in the {schemas} were put in order",)
    if Unsteady.TOOL_ORDER in kinds:
        ordered = tuple(sorted(steady, key=lambda tool: tool.name))
        names, before = ([tool.name for tool in each] for each in (ordered, steady))
        if names != before:
            at = next(
                i for i, (one, other) in enumerate(zip(names, before, strict=True)) if one != other
            )
            told = f"tools were sorted by name: tools[{at}] was {before[at]}, is {names[at]}"
            changes += (f"{Unsteady.TOOL_ORDER}: {told}",)
        steady = ordered
    return steady, changes


def _in_order(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _in_order(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [_in_order(each) for each in value]
    return value


def _told(rewrites: Sequence[Rewrite], place: str) -> tuple[str, ...]:
    return tuple(
        f"{each.kind}: “{_short(each.was)}” in {place} "
        + (f"became “{each.written}”" if each.written else "was left out")
        for each in rewrites
    )


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
