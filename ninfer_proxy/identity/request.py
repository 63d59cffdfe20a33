"""A request as the ladder asks about it: its chain, where answers stand in it, what it may be compared with. Knows no ranking."""

from collections.abc import Sequence
from dataclasses import dataclass

from ninfer_proxy.identity.canonical import head_digest
from ninfer_proxy.identity.clients import is_summary, may_be_summary
from ninfer_proxy.identity.compare import Comparison
from ninfer_proxy.identity.scope import Level, level
from ninfer_proxy.identity.sight import is_output, is_user_message
from ninfer_proxy.types import (
    ConversationId,
    Head,
    Identity,
    Item,
    ItemDigest,
    ItemReference,
    MessageItem,
    StoredLine,
    Turn,
)

NO_TOOLS = head_digest((), None, ()).tools
LONG_LINE_ITEMS = 4
"""A line needs this many items before a shorter history in its place is a compaction rather than a new start."""


@dataclass(frozen=True, slots=True)
class Request:
    """`places[i]` is the index among all items of the chain's i-th item; `sent` the turn's own items, which end the history."""

    identity: Identity
    chain: tuple[ItemDigest, ...]
    places: tuple[int, ...]
    sent: Sequence[Item]
    minted: frozenset[ConversationId]

    @classmethod
    def of(cls, turn: Turn, identity: Identity, minted: Sequence[ConversationId]) -> "Request":
        places = tuple(
            index
            for index, digest in enumerate(identity.digests, identity.head_items)
            if digest is not None
        )
        return cls(identity, identity.chain, places, turn.items, frozenset(minted))

    @property
    def scope(self) -> str:
        return self.identity.scope

    @property
    def scope_evidence(self) -> str:
        return f"{self.identity.scope_evidence} = {self.scope.partition(':')[2]}"

    @property
    def head(self) -> Head:
        return self.identity.head

    @property
    def items(self) -> int:
        """Items of the whole history."""
        return self.identity.head_items + len(self.identity.digests)

    @property
    def asks(self) -> bool:
        """Does it end with a message of a user (not in a tool loop)?"""
        return bool(self.sent) and is_user_message(self.sent[-1])

    def item(self, position: int) -> Item | None:
        """The chain's item at a position; None where only the store has it."""
        index = self.places[position] - (self.items - len(self.sent))
        return self.sent[index] if 0 <= index < len(self.sent) else None

    def answered(self, length: int) -> bool:
        """Is a model's answer among the chain's first `length` items? What only the store has counts as one."""
        return any(_is_answer(self.item(position)) for position in range(length))

    def in_scope(self, each: Comparison) -> bool:
        return bool(self.scope) and each.line.scope == self.scope

    def same_head(self, each: Comparison) -> bool:
        return each.line.head == self.head

    def same_kind(self, each: Comparison) -> bool:
        """Are both the same known kind of side request?"""
        kind = self.identity.side_kind
        return kind is not None and each.line.side_kind == kind

    def brought_back(self, each: Comparison) -> bool:
        """Did ids come back that were given out in that line's conversation?"""
        return each.line.conversation in self.minted

    def is_bare(self, head: Head) -> bool:
        return head.tools == NO_TOOLS

    def other_agent(self, line: StoredLine) -> bool:
        """A sub-agent that starts from its parent's history is no part of its parent's conversation."""
        return (
            self.identity.is_subagent
            and level(self.scope) is Level.SESSION
            and line.scope != self.scope
        )

    def compatible(self, each: Comparison) -> bool:
        """May this request belong to a line of another scope?

        Where both name something of the same kind and name it differently, only if the line is carried on from its very end
        and rests: then the client has renamed its session. If it has forked it instead, the other branch opens a
        conversation of its own when it comes back.
        """
        if self.other_agent(each.line):
            return False
        mine, theirs = level(self.scope), level(each.line.scope)
        if each.line.scope == self.scope or mine is not theirs:
            return True
        return (
            each.complete
            and self.answered(each.known)
            and each.known < len(self.chain)
            and self.same_head(each)
            and each.line.in_flight == 0
        )

    def compacts(self, each: Comparison) -> bool:
        """Was the line's history replaced by a shorter one that begins with a summary or keeps only its end?

        Under another head only the summary tells: side requests bring pieces of a history too.
        """
        if each.complete or each.prefix == len(self.chain):
            return False
        first = self.item(each.prefix)
        text = first.text if isinstance(first, MessageItem) and first.role != "assistant" else ""
        if is_summary(text):
            return True
        if len(self.chain) >= len(each.line.chain):
            return False
        if may_be_summary(text):
            return True
        long_line = len(each.line.chain) >= LONG_LINE_ITEMS
        cut_off = each.tail_kept or each.prefix == 0
        return self.same_head(each) and long_line and cut_off and self.answered(len(self.chain))


def _is_answer(item: Item | None) -> bool:
    return item is None or isinstance(item, ItemReference) or is_output(item)
