"""A turn and whose it is, with all that was looked up to tell. A value; decides and stores nothing."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from engine.api import Message
from ninfer_proxy.compared import Unsteady
from ninfer_proxy.habits import Habits
from ninfer_proxy.identity.stabilise import Steady
from ninfer_proxy.prompt import (
    AssistantGroup,
    Past,
    ReplayedOutput,
    build_messages,
    marked_borders,
    message_counts,
)
from ninfer_proxy.turn.remembered import Known
from ninfer_proxy.types import ConversationId, Identity, Item, Match, StoredLine, Turn


@dataclass(frozen=True)  # with room for what is worked out once and kept
class Recognised:
    """`sent` is the turn as its client sent it, `steady` as the engine is to see it, with what is of `kinds` changed in its
    head. `line` is the stored line it was compared with, `turns` the assistant turns in its history, `owners` the conversations
    whose ids came back in it, `parent` that of previous_response_id; `known` is what is known of its first items.
    `habits` are what was learned of its client's family.
    """

    sent: Turn
    steady: Steady
    kinds: Collection[Unsteady]
    identity: Identity
    match: Match
    conversation: ConversationId
    line: StoredLine | None
    turns: Mapping[AssistantGroup, ReplayedOutput | None]
    owners: tuple[ConversationId, ...]
    parent: ConversationId | None
    known: Known
    habits: Habits

    @property
    def turn(self) -> Turn:
        return self.steady.turn

    @property
    def items(self) -> tuple[Item, ...]:
        """The whole history."""
        return self.steady.items

    @property
    def is_subagent(self) -> bool:
        return self.identity.is_subagent

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """Those of the prompt."""
        return build_messages(self.turn, self.items, self.turns, self._past)

    @cached_property
    def message_counts(self) -> tuple[int, ...]:
        """`[k]`: how many of the prompt's messages lie wholly within the first k items."""
        return message_counts(self.turn, self.items, self.turns, self._past)

    @cached_property
    def marked_borders(self) -> tuple[int, ...]:
        """Borders that the client marked, counted in messages."""
        return marked_borders(self.items, self.message_counts, self._past)

    @property
    def _past(self) -> Past:
        return self.known.past(self.turn.instructions)
