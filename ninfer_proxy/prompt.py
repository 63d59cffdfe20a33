"""Items → engine prompt: which items share a chat message, where the borders lie. Pure; knows no tokens and no template.

items      sys  user  reasoning msg call call  output output  user
groups                [------ one turn -----]
messages   sys  user  assistant                tool   tool    user
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.api import LedgerEntry, Message, Prompt, ToolCall
from ninfer_proxy.items import CACHE_MARKS, SYSTEM_ROLES
from ninfer_proxy.types import (
    FunctionCallItem,
    FunctionOutputItem,
    Item,
    ItemDigest,
    MessageItem,
    PromptLayout,
    ReasoningItem,
    Turn,
)

_MARKS = frozenset(CACHE_MARKS)
LONGEST_CUT_RUN = 12
"""Longer runs of assistant items are taken as one turn: looking for cuts in them costs more than it finds."""


@dataclass(frozen=True, slots=True)
class ReplayedOutput:
    """What is stored of an assistant turn: its reasoning text and the tokens it was generated as."""

    reasoning: str | None
    ledger: LedgerEntry | None


@dataclass(frozen=True, slots=True)
class AssistantGroup:
    """Items [start, end) that one assistant turn produced."""

    start: int
    end: int


def is_assistant(item: Item) -> bool:
    """Does the item belong to an assistant turn?"""
    return isinstance(item, FunctionCallItem | ReasoningItem) or (
        isinstance(item, MessageItem) and item.role == "assistant"
    )


def assistant_groups(items: Sequence[Item], begin: int = 0) -> tuple[AssistantGroup, ...]:
    """Maximal runs of assistant items from item `begin` on, in order."""
    groups: list[AssistantGroup] = []
    start: int | None = None
    for index, item in enumerate(items[begin:], begin):
        if is_assistant(item):
            start = index if start is None else start
        elif start is not None:
            groups.append(AssistantGroup(start, index))
            start = None
    if start is not None:
        groups.append(AssistantGroup(start, len(items)))
    return tuple(groups)


def possible_turns(
    items: Sequence[Item],
    digests: Sequence[ItemDigest | None],
    head_items: int,
    begin: int = 0,
) -> dict[AssistantGroup, tuple[ItemDigest, ...]]:
    """Every stretch of assistant items that may be the output of one turn, with the digests that name it.

    Mostly a run is one turn, but where a client leaves out what lay between, several turns follow each other directly.
    `digests[0]` belongs to item `head_items`; turns before item `begin` aren't looked for.
    """
    found: dict[AssistantGroup, tuple[ItemDigest, ...]] = {}
    for run in assistant_groups(items, begin):
        starts: Sequence[int] = range(run.start, run.end)
        if len(starts) > LONGEST_CUT_RUN:
            starts = (run.start,)
        for start in starts:
            for end in range(start + 1, run.end + 1) if len(starts) > 1 else (run.end,):
                inside = digests[max(0, start - head_items) : max(0, end - head_items)]
                if counted := tuple(digest for digest in inside if digest is not None):
                    found[AssistantGroup(start, end)] = counted
    return found


def cut_turns(
    items: Sequence[Item], known: Mapping[AssistantGroup, ReplayedOutput], begin: int = 0
) -> dict[AssistantGroup, ReplayedOutput | None]:
    """The assistant turns of a history from item `begin` on, in order: each run cut into known outputs, longest first; the rest
    stays together.
    """
    cut: dict[AssistantGroup, ReplayedOutput | None] = {}
    for run in assistant_groups(items, begin):
        rest = start = run.start
        while start < run.end:
            ends = (AssistantGroup(start, end) for end in range(run.end, start, -1))
            found = next((group for group in ends if group in known), None)
            if found is None:
                start += 1
                continue
            if rest < start:
                cut[AssistantGroup(rest, start)] = None
            cut[found] = known[found]
            rest = start = found.end
        if rest < run.end:
            cut[AssistantGroup(rest, run.end)] = None
    return cut


def assistant_message(items: Sequence[Item], replayed: ReplayedOutput | None) -> Message:
    """One assistant message of a group's items; the ledger's tokens go with it where the group is known."""
    texts = [item.text for item in items if isinstance(item, MessageItem)]
    thoughts = [item.text for item in items if isinstance(item, ReasoningItem) and item.text]
    calls = tuple(
        ToolCall(item.call_id, item.name, item.arguments)
        for item in items
        if isinstance(item, FunctionCallItem)
    )
    reasoning = "\n".join(thoughts) or (replayed.reasoning if replayed else None)
    return Message(
        role="assistant",
        text="".join(texts),
        reasoning=reasoning,
        tool_calls=calls,
        ledger=replayed.ledger if replayed else None,
    )


@dataclass(frozen=True, slots=True)
class Past:
    """What was made of a history's first items when they were a prompt, under the same instructions: messages, `message_counts`,
    `marked_borders`. They end where an assistant turn does.
    """

    messages: tuple[Message, ...] = ()
    counts: tuple[int, ...] = ()
    marked: tuple[int, ...] = ()

    @property
    def items(self) -> int:
        return max(0, len(self.counts) - 1)


NO_PAST = Past()


def build_prompt(
    turn: Turn,
    items: Sequence[Item],
    turns: Mapping[AssistantGroup, ReplayedOutput | None],
    *,
    thinking: bool,
) -> Prompt:
    """The engine's prompt for a turn over its whole history `items`, whose assistant turns are `turns` (see `cut_turns`)."""
    return prompt_of(turn, build_messages(turn, items, turns), thinking=thinking)


def build_messages(
    turn: Turn,
    items: Sequence[Item],
    turns: Mapping[AssistantGroup, ReplayedOutput | None],
    past: Past = NO_PAST,
) -> tuple[Message, ...]:
    """The messages of that prompt."""
    messages = list(past.messages)
    if turn.instructions and not messages:
        messages.append(Message("system", turn.instructions))
    groups = {group.start: group for group in turns}
    index = past.items
    while index < len(items):
        if (group := groups.get(index)) is not None:
            messages.append(assistant_message(items[index : group.end], turns[group]))
            index = group.end
            continue
        message = single_message(items[index])
        if message is not None:
            messages.append(message)
        index += 1
    return tuple(messages)


def prompt_of(turn: Turn, messages: tuple[Message, ...], *, thinking: bool) -> Prompt:
    """The prompt of these messages."""
    return Prompt(
        messages=messages,
        tools=turn.tools,
        thinking=thinking if turn.thinking is None else turn.thinking,
        effort=turn.effort,
        preserve_thinking=turn.preserve_thinking,
    )


def single_message(item: Item) -> Message | None:
    """The message of an item outside assistant turns; None where the item has no place in a prompt, as empty system text hasn't."""
    if isinstance(item, MessageItem):
        says_nothing = item.role in SYSTEM_ROLES and not item.text
        return None if says_nothing else Message(item.role, item.text)
    if isinstance(item, FunctionOutputItem):
        return Message("tool", item.text, tool_call_id=item.call_id)
    return None


def message_counts(
    turn: Turn, items: Sequence[Item], turns: Iterable[AssistantGroup], past: Past = NO_PAST
) -> tuple[int, ...]:
    """`counts[k]`: how many of the prompt's messages lie wholly within the first k items."""
    counts = list(past.counts) or [1 if turn.instructions else 0]
    inside = {index for group in turns for index in range(group.start, group.end - 1)}
    for index, item in enumerate(items[past.items :], past.items):
        makes_one = is_assistant(item) or isinstance(item, MessageItem | FunctionOutputItem)
        counts.append(counts[-1] + (makes_one and index not in inside))
    return tuple(counts)


def marked_borders(
    items: Sequence[Item], counts: Sequence[int], past: Past = NO_PAST
) -> tuple[int, ...]:
    """The borders that the client marked, in order of its marks. `counts` as `message_counts` gives them.

    States stand between messages, so a mark means the last border that isn't behind it: behind its item, or before the
    item where parts of it follow the mark, which may be others the next time.
    """
    borders = list(past.marked)
    for index, item in enumerate(items[past.items :], past.items):
        parts = _parts(item)
        if not _is_marked(item.raw) and not any(map(_is_marked, parts)):
            continue
        *inner, last = parts or (None,)
        if any(map(_is_marked, inner)):
            borders.append(counts[index])
        if _is_marked(last) or _is_marked(item.raw):
            borders.append(counts[index + 1])
    return tuple(borders)


def _parts(item: Item) -> Sequence[Any]:
    content = item.raw.get("output" if isinstance(item, FunctionOutputItem) else "content")
    return content if isinstance(content, list) else ()


def _is_marked(raw: Any) -> bool:
    return (
        isinstance(raw, dict)
        and not _MARKS.isdisjoint(raw)
        and any(raw.get(name) for name in CACHE_MARKS)
    )


def layout(prompt: Prompt, explicit: tuple[int, ...] = ()) -> PromptLayout:
    """Borders of a prompt; `explicit` are those that the client marked. A user message right behind another one at the prompt's end may be gone in the next turn
    (some agents append a passing note to each request), so the border before it is worth knowing.
    """
    messages = prompt.messages
    head = 0
    while head < len(messages) and messages[head].role in SYSTEM_ROLES:
        head += 1
    ends_with_two_users = (
        len(messages) >= 2 and messages[-1].role == "user" and messages[-2].role == "user"
    )
    transient = len(messages) - 1 if ends_with_two_users else None
    return PromptLayout(head, len(messages), transient, explicit)
