"""The last turn of each conversation lately in use, so that the next one works out only what is new in it. In memory only; knows no store.

Most requests begin with the whole of the one before, or name it. Equality is proved, item by item; what was worked out for equal
items (digests, spellings, tokens of assistant turns) is then theirs too.

last turn   a b c d e │ f            `e` ends its prompt, `f` is its output
request     a b c d e   f' g         known: a … e, and `f` where the client spells it as it was sent
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ninfer_proxy.prompt import NO_PAST, AssistantGroup, Past, ReplayedOutput, is_assistant
from ninfer_proxy.store.records import RecordedItem
from ninfer_proxy.types import ConversationId, Item, ResponseId, TenantKey

Turns = Mapping[AssistantGroup, ReplayedOutput | None]

TURNS = 64
BYTES = 16 << 20
"""Of items as JSON, over all remembered turns. A longer history than that isn't remembered."""


@dataclass(frozen=True, slots=True)
class LastTurn:
    """One finished turn; `readable` tells whether its response may be named. `owners` are the conversations in which ids of the prompt were given out (None: not looked up), `turns` its assistant turns;
    `said` is what the output is replayed as (None: it isn't).
    """

    tenant: TenantKey
    conversation: ConversationId
    response: ResponseId
    readable: bool
    prompt: tuple[RecordedItem, ...]
    output: tuple[RecordedItem, ...]
    owners: tuple[ConversationId, ...] | None
    turns: Turns
    said: ReplayedOutput | None
    instructions: str | None
    past: Past

    @property
    def items(self) -> tuple[RecordedItem, ...]:
        return self.prompt + self.output


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a history: its first items are `items`, those of `last` and its prompt at least; nothing without a `last`."""

    last: LastTurn | None = None
    items: tuple[RecordedItem, ...] = ()

    @property
    def prompt_items(self) -> int:
        return len(self.last.prompt) if self.last else 0

    @property
    def owners(self) -> tuple[ConversationId, ...] | None:
        """Of ids in the last turn's prompt; None where nobody has looked."""
        return self.last.owners if self.last else None

    def owners_with(self, more: Sequence[ConversationId]) -> tuple[ConversationId, ...] | None:
        """Of ids in the whole last turn, and `more`."""
        if self.last is None or self.last.owners is None:
            return None
        return tuple(dict.fromkeys((*self.last.owners, self.last.conversation, *more)))

    def past(self, instructions: str | None) -> Past:
        """What the prompt of these first items was, if it was one under the same instructions."""
        if self.last is None or self.last.instructions != instructions:
            return NO_PAST
        return self.last.past

    def turns(self, items: Sequence[Item]) -> tuple[int, Turns]:
        """(n, the assistant turns among the first n items) of a history that begins so: the output counts where it came back as
        it was, and nothing that may belong to it follows.
        """
        if self.last is None:
            return 0, {}
        start, end = self.prompt_items, len(self.last.items)
        ends_there = end == len(items) or (end < len(items) and not is_assistant(items[end]))
        if len(self.items) < end or not ends_there or self.last.said is None:
            return start, self.last.turns
        return end, {**self.last.turns, AssistantGroup(start, end): self.last.said}


class LastTurns:
    """Mutable; one for each app. Forget everything when something is deleted, and now and then what nobody uses."""

    def __init__(self) -> None:
        self._turns: OrderedDict[ConversationId, tuple[LastTurn, int]] = OrderedDict()
        self._bytes = 0

    def keep(self, turn: LastTurn) -> None:
        """In the place of the conversation's turn before; what has not been used for longest goes. Not kept are prompts that end
        with an assistant item: what comes next may belong to the same turn.
        """
        self._drop(turn.conversation)
        size = sum(item.size for item in turn.items)
        if size > BYTES or not turn.prompt or is_assistant(turn.prompt[-1].item):
            return
        self._turns[turn.conversation] = turn, size
        self._bytes += size
        while len(self._turns) > TURNS or self._bytes > BYTES:
            self._drop(next(iter(self._turns)))

    def forget(self) -> None:
        self._turns.clear()
        self._bytes = 0

    def named(self, tenant: TenantKey, response: ResponseId) -> LastTurn | None:
        """The remembered turn that has this response, if the tenant may read it."""
        for turn, _ in self._turns.values():
            if turn.response == response and turn.tenant == tenant and turn.readable:
                return turn
        return None

    def beginning(self, tenant: TenantKey, items: Sequence[Item]) -> Known:
        """The remembered turn whose whole prompt these items begin with, the longest if there are several."""
        found = Known()
        for turn, _ in self._turns.values():
            if turn.tenant != tenant or not found.prompt_items < len(turn.prompt) <= len(items):
                continue
            equal = _equal(turn.items, items)
            if equal >= len(turn.prompt):
                found = Known(turn, turn.items[:equal])
        return found

    def _drop(self, conversation: ConversationId) -> None:
        _, size = self._turns.pop(conversation, (None, 0))
        self._bytes -= size


def _equal(known: Sequence[RecordedItem], items: Sequence[Item]) -> int:
    """How many items are the same on the wire, from the start."""
    for index, (one, other) in enumerate(zip(known, items, strict=False)):
        if one.item.raw != other.raw:
            return index
    return min(len(known), len(items))
