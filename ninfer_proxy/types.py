"""The proxy's nouns as values: what a client sent, what is stored, what was decided. Pure; knows no wire format and no table."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, NewType

from engine.api import (
    Anchor,
    AnchorKind,
    CheckpointId,
    CheckpointInfo,
    ContinuationId,
    LedgerEntry,
    Retention,
    Sampling,
    Started,
    TenantKey,
    Tier,
    ToolSpec,
)

__all__ = [
    "Anchor",
    "AnchorKind",
    "CheckpointId",
    "CheckpointInfo",
    "ContinuationId",
    "LedgerEntry",
    "Retention",
    "Sampling",
    "Started",
    "TenantKey",
    "Tier",
    "ToolSpec",
]

ConversationId = NewType("ConversationId", str)
ResponseId = NewType("ResponseId", str)
ItemDigest = NewType("ItemDigest", bytes)
"""16 bytes over one canonical item: equal for items that mean the same, however they were spelled."""


# --- items -------------------------------------------------------------------------------------
# `raw` is the Responses wire form that is stored and given back; the other fields are what the
# prompt and identity need. Chat and other wire formats are converted to this form on entry.


@dataclass(frozen=True, slots=True)
class MessageItem:
    """`role`: user, assistant, system or developer. `text` joins the text parts; media parts live in `raw` only."""

    role: str
    text: str
    raw: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FunctionCallItem:
    """`arguments` is JSON text exactly as it arrived or was generated."""

    call_id: str
    name: str
    arguments: str
    raw: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FunctionOutputItem:
    call_id: str
    text: str
    raw: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReasoningItem:
    """`text` is what the client can see of it ('' when only an id or an opaque token came back)."""

    text: str
    encrypted: str | None
    raw: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ItemReference:
    """A stored item named by id instead of being sent."""

    item_id: str
    raw: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OpaqueItem:
    """An item type that is stored and given back but has no place in the prompt."""

    kind: str
    raw: Mapping[str, Any]


Item = (
    MessageItem | FunctionCallItem | FunctionOutputItem | ReasoningItem | ItemReference | OpaqueItem
)


# --- a request ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClientEvidence:
    """What a request says about who sends it. `headers` are lower-cased and limited to those identity can use."""

    headers: Mapping[str, str] = field(default_factory=dict)
    user_agent: str = ""
    prompt_cache_key: str | None = None
    user: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Turn:
    """One request for a response, whatever wire format it came in.

    `items` is the input as sent: the whole history, or only what is new when `previous_response_id` is given.
    `echo` holds request fields that the response object repeats. `thinking` and `effort` follow `reasoning.effort`
    (None: the server's default); with `preserve_thinking` the reasoning of earlier turns stays in the prompt. `tools`
    are the callable functions; `tools_raw` all tools as sent. `include` names optional output the client wants
    (`reasoning.encrypted_content`, ...).
    """

    tenant: TenantKey
    client: ClientEvidence
    model: str
    items: tuple[Item, ...]
    received_at: float
    instructions: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    tools_raw: tuple[Mapping[str, Any], ...] = ()
    tool_choice: str = "auto"
    previous_response_id: ResponseId | None = None
    store: bool = True
    stream: bool = False
    sampling: Sampling = Sampling()
    stop: tuple[str, ...] = ()
    max_output_tokens: int | None = None
    thinking: bool | None = None
    effort: str | None = None
    preserve_thinking: bool = True
    metadata: Mapping[str, str] = field(default_factory=dict)
    include: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    echo: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The served model; `context_tokens` None while the engine hasn't said."""

    name: str
    context_tokens: int | None
    created_at: int = 0


# --- identity ----------------------------------------------------------------------------------


class LineRole(StrEnum):
    """MAIN lines hold a slot of their own; SIDE lines (title jobs, heartbeats, variants) use scratch slots."""

    MAIN = "main"
    SIDE = "side"


@dataclass(frozen=True, slots=True)
class Head:
    """Digests of what stands before a conversation's first item: tools, and instructions with leading system items."""

    tools: ItemDigest
    instructions: ItemDigest


@dataclass(frozen=True)  # with room for what is worked out once and kept
class Identity:
    """What a request's own content says about whose turn it is.

    `scope` names the client's session as far as it tells ('' if it doesn't); `scope_evidence` says by what. `family` is
    the client family. `head_items` leading system items belong to the head. `digests[i]` is the digest of the i-th
    item behind the head; None for reasoning, which clients drop or keep at will and which therefore doesn't count.
    `side_kind` names a side request that its family is known to send (title, heartbeat, ...), else None.
    `is_subagent`: the sender works for another conversation and ends with its task.
    """

    scope: str
    scope_evidence: str
    family: str
    head: Head
    head_items: int
    digests: tuple[ItemDigest | None, ...]
    side_kind: str | None = None
    is_subagent: bool = False

    @cached_property
    def chain(self) -> tuple[ItemDigest, ...]:
        return tuple(digest for digest in self.digests if digest is not None)


@dataclass(frozen=True, slots=True)
class StoredLine:
    """A stored conversation as identity sees it: its current line of canonical items, prompt and output together.

    `side_kind` is the kind of its last turn, where that was a side request of a known kind.
    """

    conversation: ConversationId
    scope: str
    role: LineRole
    family: str
    head: Head
    chain: tuple[ItemDigest, ...]
    tip_response: ResponseId | None
    last_used_at: float
    parent: ConversationId | None = None
    in_flight: int = 0
    side_kind: str | None = None


class MatchKind(StrEnum):
    CONTINUES = "continues"
    FORKS = "forks"
    SIDE = "side_request"
    NEW = "new"


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first item that differs from the stored line. `stored_index` counts the line's canonical items; `item_index` the
    request's items. `transient` is set when dropping the stored item alone makes the rest agree again.
    """

    stored_index: int
    item_index: int | None
    transient: bool = False


@dataclass(frozen=True, slots=True)
class Match:
    """Identity's answer. `conversation` is None for a line not stored yet. `shared` counts canonical items in common with the
    line that was compared (`compared_with`), those behind a vanished transient item included; `evidence` lists what decided,
    strongest first. All that follows the request's first `known_items` items (the head counts) is new to that line.
    """

    kind: MatchKind
    role: LineRole
    conversation: ConversationId | None
    shared: int
    evidence: tuple[str, ...]
    parent: ConversationId | None = None
    compared_with: ConversationId | None = None
    head_changed: tuple[str, ...] = ()
    divergence: Divergence | None = None
    compacted: bool = False
    side_kind: str | None = None
    known_items: int = 0


# --- slots and plans ---------------------------------------------------------------------------


class SlotClass(StrEnum):
    """What a continuation is doing, most worth keeping first."""

    RUNNING = "running"
    WAITING_FOR_TOOL = "waiting_for_tool"
    RECENT = "recent"
    IDLE = "idle"
    FINISHED_SUBAGENT = "finished_subagent"
    SIDE = "side"


@dataclass(frozen=True, slots=True)
class SlotState:
    """A slot as planning sees it. `tokens` is the length of the continuation's longest checkpoint; `checkpoints` are in the
    order they were made (after a rewind the newest isn't the longest).
    """

    slot: int
    conversation: ConversationId
    continuation: ContinuationId
    role: LineRole
    last_used_at: float
    pinned_until: float | None = None
    in_flight: int = 0
    waiting_for_tool: bool = False
    is_subagent: bool = False
    checkpoints: tuple[CheckpointInfo, ...] = ()
    tokens: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Eviction:
    slot: int
    conversation: ConversationId
    continuation: ContinuationId
    reason: str


@dataclass(frozen=True, slots=True)
class PromptLayout:
    """Borders that planning may anchor on, counted in prompt messages. `head` leading system messages; `messages` all of
    them; `transient` the number before the learned transient item at the end (None: none); `explicit` marked by the client.
    """

    head: int
    messages: int
    transient: int | None = None
    explicit: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TurnPlan:
    """What will be done for a turn, decided before anything is done and stored beside the outcome.

    `expected_tokens` is where planning believes the engine can resume (0: nowhere, or it can't tell); the engine's
    answer may differ and the difference is shown.
    """

    conversation: ConversationId
    continuation: ContinuationId
    slot: int
    role: LineRole
    anchors: tuple[Anchor, ...]
    ladder_tokens: int | None
    retention: Retention
    evictions: tuple[Eviction, ...] = ()
    expected_tokens: int = 0


class Reason(StrEnum):
    """Why prompt tokens were computed again (or not); extends the list of OpenAI's prompt_cache_diagnostics."""

    CACHE_HIT = "cache_hit"
    MODEL_CHANGED = "model_changed"
    TOOLS_CHANGED = "tools_changed"
    INSTRUCTIONS_CHANGED = "instructions_changed"
    INPUT_CHANGED = "input_changed"
    REASONING_EFFORT_CHANGED = "reasoning_effort_changed"
    CONTEXT_COMPACTED = "context_compacted"
    TRANSIENT_ITEM = "transient_item"
    BRANCH = "branch"
    SIDE_REQUEST = "side_request"
    EVICTED = "evicted"
    CHECKPOINT_MISSING = "checkpoint_missing"
    STATE_REJECTED = "state_rejected"
    ENGINE_RESTARTED = "engine_restarted"
    NEW_CONVERSATION = "new_conversation"


@dataclass(frozen=True, slots=True)
class Decision:
    """The explanation of one response: figures, the reason in a word, and a sentence for a person.

    `header` is the value of `x-ninfer-decision`. `difference` names the first differing item and character, if any, and
    `differs_at` the place alone ("input[7]:23"). `stabilised` says what was changed in the head, as the configuration asks
    for, and `saved_tokens` about how many of the reused ones would have been computed without it (None: it can't be told).
    """

    reason: Reason
    detail: str
    slot: int
    conversation: ConversationId
    match: MatchKind
    evidence: tuple[str, ...]
    prompt_tokens: int
    reused_tokens: int
    source_tier: Tier | None
    source_kind: AnchorKind | None
    difference: str | None = None
    differs_at: str | None = None
    stabilised: tuple[str, ...] = ()
    saved_tokens: int | None = None

    @property
    def prefilled_tokens(self) -> int:
        return self.prompt_tokens - self.reused_tokens

    @property
    def header(self) -> str:
        told = (
            f"{self.reason}; slot={self.slot}; conversation={self.conversation}; match={self.match}; "
            f"reused={self.reused_tokens}; prefilled={self.prefilled_tokens}; from={self.source_tier or 'nothing'}"
        )
        if self.differs_at is not None:
            told += f"; differs={self.differs_at}"
        if self.saved_tokens:
            told += f"; saved={self.saved_tokens}"
        return told
