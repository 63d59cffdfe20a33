"""What goes into the store and comes out of it, as values. Pure; knows no SQL."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ninfer_proxy.events import Usage
from ninfer_proxy.habits import Seen
from ninfer_proxy.store.codec import raw_digest
from ninfer_proxy.types import (
    CheckpointInfo,
    ContinuationId,
    ConversationId,
    Decision,
    Head,
    Item,
    ItemDigest,
    LedgerEntry,
    LineRole,
    ResponseId,
    SlotState,
    TenantKey,
    TurnPlan,
)

# --- in ----------------------------------------------------------------------------------------


@dataclass(frozen=True)  # with room for what is worked out once and kept
class RecordedItem:
    """`item.raw` is the wire form exactly as it was sent or generated; `digest` is its canonical digest, if it has one.

    Items are told apart by `raw`, ids included: don't put fresh ids into what a client sends without them, or its
    history is stored anew each turn. The store mints ids for those itself.
    """

    item: Item
    digest: ItemDigest | None

    @cached_property
    def spelling(self) -> tuple[bytes, int]:
        """The digest of `item.raw` and how many bytes of JSON it is."""
        return raw_digest(self.item.raw)

    @property
    def size(self) -> int:
        """Bytes of JSON."""
        return self.spelling[1]


@dataclass(frozen=True, slots=True)
class ConversationDraft:
    """What a turn says of its conversation; the store keeps times and counters itself.

    An empty `scope` or `client` leaves the stored one as it is.
    """

    id: ConversationId
    tenant: TenantKey
    scope: str
    role: LineRole
    family: str
    head: Head
    continuation: ContinuationId
    parent: ConversationId | None = None
    side_kind: str | None = None
    is_subagent: bool = False
    waiting_for_tool: bool = False
    client: str = ""


@dataclass(frozen=True, slots=True)
class DropRecord:
    """Checkpoints that ceased to exist at `at` (Unix seconds)."""

    at: float
    reason: str
    checkpoints: tuple[CheckpointInfo, ...]


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """All of one finished turn, stored in one transaction.

    `prompt` is the whole prompt (history, head items and what is new) in order, `output` what was generated; `body` the
    final response object (its output is rebuilt from `output`). `chain` is the conversation's line from now on; of two
    turns at once the one that ends last is gone on with. `output_digest` names the output items as a group, for the
    ledger. `pinned_until` can only lengthen a lease. `checkpoints` are those made or touched, in that order; they are
    merged with the known ones of the same continuation. `seen` is what the request has shown of its client's habits.
    """

    conversation: ConversationDraft
    response: ResponseId
    created_at: float
    completed_at: float
    status: str
    prompt: tuple[RecordedItem, ...]
    output: tuple[RecordedItem, ...]
    body: Mapping[str, Any]
    chain: tuple[ItemDigest, ...]
    plan: TurnPlan
    decision: Decision
    usage: Usage
    slot: int | None
    engine_generation: int
    model: str
    weights_id: str | None = None
    effort: str | None = None
    previous_response: ResponseId | None = None
    retrievable: bool = True
    output_digest: ItemDigest | None = None
    ledger: LedgerEntry | None = None
    reasoning: str | None = None
    pinned_until: float | None = None
    checkpoints: tuple[CheckpointInfo, ...] = ()
    seen: Seen = field(default_factory=dict)


# --- out ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredHistory:
    """All that a `previous_response_id` stands for: the items of its prompt and output, in order, as they were sent."""

    conversation: ConversationId
    response: ResponseId
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class StoredOutput:
    """What the engine produced for one assistant turn, for its exact replay.

    `behind` counted items of its prompt stood before it, the last two of them `asked`; both are left out (0 and none) where
    no other turn of the conversation says the same.
    """

    reasoning: str | None
    ledger: LedgerEntry | None
    behind: int = 0
    asked: tuple[ItemDigest, ...] = ()


@dataclass(frozen=True, slots=True)
class ItemPage:
    """One page of a response's input items; each has an id."""

    data: tuple[Mapping[str, Any], ...]
    first_id: str | None
    last_id: str | None
    has_more: bool


@dataclass(frozen=True)  # with room for what is worked out once and kept
class StoredConversation:
    """A conversation without its line. `last_reason` is why prompt tokens were last computed again."""

    id: ConversationId
    tenant: TenantKey
    scope: str
    role: LineRole
    family: str
    head: Head
    continuation: ContinuationId
    parent: ConversationId | None
    side_kind: str | None
    tip_response: ResponseId | None
    slot: int | None
    pinned_until: float | None
    is_subagent: bool
    waiting_for_tool: bool
    client: str
    created_at: float
    last_used_at: float
    hits: int
    tokens_prefilled: int
    tokens_reused: int
    last_reason: str | None
    checkpoints: tuple[CheckpointInfo, ...]

    @property
    def tokens(self) -> int:
        """Length of the longest checkpoint."""
        return max((c.position for c in self.checkpoints), default=0)

    @property
    def bytes(self) -> int:
        return sum(c.bytes for c in self.checkpoints)

    @cached_property
    def slot_state(self) -> SlotState:
        assert self.slot is not None, "only a conversation that holds a slot has a slot state"
        return SlotState(
            slot=self.slot,
            conversation=self.id,
            continuation=self.continuation,
            role=self.role,
            last_used_at=self.last_used_at,
            pinned_until=self.pinned_until,
            waiting_for_tool=self.waiting_for_tool,
            is_subagent=self.is_subagent,
            checkpoints=self.checkpoints,
            tokens=self.tokens,
            bytes=self.bytes,
        )


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """One turn for a person who asks about it. `plan` is the TurnPlan as plain data; None after deletion."""

    id: ResponseId
    conversation: ConversationId
    previous_response: ResponseId | None
    created_at: float
    completed_at: float
    status: str
    retrievable: bool
    deleted: bool
    model: str
    weights_id: str | None
    effort: str | None
    engine_generation: int
    prompt_items: int
    output_items: int
    usage: Usage
    decision: Decision
    plan: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StoredDrop:
    """Why state is gone: `tokens` is the longest position among the `checkpoints` dropped together."""

    at: float
    continuation: ContinuationId
    conversation: ConversationId | None
    reason: str
    tokens: int
    bytes: int
    checkpoints: tuple[CheckpointInfo, ...]


@dataclass(frozen=True, slots=True)
class ConversationDetail:
    """`items` counts all stored items, `line_items` those of the current line. Newest responses and drops first."""

    conversation: StoredConversation
    items: int
    line_items: int
    responses: tuple[StoredResponse, ...]
    drops: tuple[StoredDrop, ...]


@dataclass(frozen=True, slots=True)
class Reconciled:
    """Where records and engine differed: `lost` conversations have no state left, `unowned` continuations belong to nobody."""

    lost: tuple[ConversationId, ...]
    unowned: tuple[ContinuationId, ...]


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep removed."""

    conversations: int = 0
    responses: int = 0
    items: int = 0
    drops: int = 0

    def plus(self, other: "Swept") -> "Swept":
        return Swept(
            self.conversations + other.conversations,
            self.responses + other.responses,
            self.items + other.items,
            self.drops + other.drops,
        )
