"""The engine's door: the values that cross it and how they are framed. Standard library only; knows tokens and bytes, not who talks.

A client (the proxy) holds one end of a socket pair, `engine.serve` the other. Each message is one frame: a big-endian
uint32 length and a pickle. Both ends are processes of one user joined by an inherited socket, never by an address, so
pickle needs no defence here and keeps the values plain dataclasses. Those a prompt is made of are in `engine.prompt`,
those that tell what an engine holds and what it's worth in `engine.inventory`; clients take all of them from here.

    client → engine    Generate  Cancel  SetRetention  Drop  Prepare  Prefetch  CountTokens  TakeSnapshot  Shutdown
    engine → client    Ready  Loading  (Rejected | Started  Progress*  Delta*  (Finished | Failed))  Dropped  Prepared  TokenCount
                       Snapshot

Per Generate exactly one of Rejected, Finished, Failed arrives, and it is the last message with that `request_id`; per Prepare
exactly one Prepared and nothing else.
"""

import pickle
import struct
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any

from engine.inventory import (
    Anchor,
    AnchorKind,
    CheckpointId,
    CheckpointInfo,
    ContinuationId,
    ContinuationInfo,
    LaneInfo,
    RequestId,
    Retention,
    Snapshot,
    TenantKey,
    Tier,
    TierUsage,
)
from engine.prompt import LedgerEntry, Message, Prompt, ToolCall, ToolSpec

__all__ = [
    "Anchor",
    "AnchorKind",
    "CheckpointId",
    "CheckpointInfo",
    "ContinuationId",
    "ContinuationInfo",
    "LaneInfo",
    "LedgerEntry",
    "Message",
    "Prompt",
    "RequestId",
    "Retention",
    "Snapshot",
    "TenantKey",
    "Tier",
    "TierUsage",
    "ToolCall",
    "ToolSpec",
]


class ExitStatus(IntEnum):
    """How the engine process ends, for whoever started it. REFUSED: it could not start, or met a fault nobody foresaw. FAULT: a forward
    pass failed, or memory could not be accounted for. HUNG: a step did not end in time.
    """

    ENDED = 0
    REFUSED = 1
    FAULT = 70
    HUNG = 75


FRAME_HEADER = struct.Struct(">I")
MAX_FRAME_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Sampling:
    """`temperature` 0 is greedy; `top_k` 0, `top_p` 1 and `min_p` 0 switch those off; penalties as in the OpenAI API."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Generate:
    """Run one prompt. Checkpoints made on the way belong to `continuation`; any state of `tenant` may be read.

    `ladder_tokens` asks for a checkpoint each that many prompt tokens. `allow_tools` False keeps the model from opening a
    tool call while the tools stay in the prompt. `max_tokens` None means up to the context's end. `echo_tokens` asks for
    the prompt's token ids in Started, `dictation` makes the model say these pieces, and with None fail there (both for debugging).
    """

    request_id: RequestId
    tenant: TenantKey
    continuation: ContinuationId
    prompt: Prompt
    retention: Retention
    sampling: Sampling = Sampling()
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    anchors: tuple[Anchor, ...] = ()
    ladder_tokens: int | None = None
    save_tip: bool = True
    allow_tools: bool = True
    echo_tokens: bool = False
    dictation: tuple[str | bytes | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    request_id: RequestId


@dataclass(frozen=True, slots=True)
class SetRetention:
    entries: tuple[Retention, ...]


@dataclass(frozen=True, slots=True)
class Drop:
    """Forget a continuation (or only the named checkpoints of it). Running requests keep what they use."""

    continuation: ContinuationId
    reason: str
    checkpoints: tuple[CheckpointId, ...] | None = None


@dataclass(frozen=True, slots=True)
class Prepare:
    """Compute a prompt up to its generation opener while nothing is asked for, and leave checkpoints at `anchors` and at its end.

    A request makes it give way within one step; it goes on when all have ended. Nothing ceases to exist for it: it takes memory
    that is free, or that checkpoints worth less can leave for another tier. A newer one of the same continuation replaces
    it, a Generate or a Drop of that continuation ends it, and so does Cancel.
    """

    request_id: RequestId
    tenant: TenantKey
    continuation: ContinuationId
    prompt: Prompt
    retention: Retention
    anchors: tuple[Anchor, ...] = ()
    ladder_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Prefetch:
    """A hint that these continuations will soon be asked for, the soonest first: what only the disk has of them comes to memory as far as
    nothing is lost for it, after all that is waited for. Not answered.
    """

    continuations: tuple[ContinuationId, ...]


@dataclass(frozen=True, slots=True)
class CountTokens:
    request_id: RequestId
    prompt: Prompt


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    request_id: RequestId


@dataclass(frozen=True, slots=True)
class Shutdown:
    pass


@dataclass(frozen=True, slots=True)
class Loading:
    """Start-up progress for a person: what is being done, and how far (0..1) where known."""

    stage: str
    fraction: float | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """`weights_id` identifies weights, KV type and geometry: state is valid only under an equal one. `continuations` are those
    that an earlier process left on disk: all that a newborn engine holds. `unpinned_host_bytes` should be page-locked and aren't.
    """

    model: str
    weights_id: str
    tokenizer_id: str
    context_tokens: int
    max_lanes: int
    device: str
    continuations: "tuple[ContinuationInfo, ...]" = ()
    unpinned_host_bytes: int = 0


class ResumeReason(StrEnum):
    """Why the engine started where it did. STATE_REJECTED: a longer state was there, but damaged on disk or without room for it."""

    RESUMED = "resumed"
    NOTHING_STORED = "nothing_stored"
    NO_SHARED_CHECKPOINT = "no_shared_checkpoint"
    STATE_REJECTED = "state_rejected"


@dataclass(frozen=True, slots=True)
class Started:
    """Admission's answer. `reused_tokens` are not computed as things stand (Finished has the last word); `matched_tokens` is the longest prefix any stored
    token line of the tenant shares with the prompt, so `matched - reused` is what a missing checkpoint cost.

    `borders[i]` is the token position behind the first i messages; `borders[-1]` lies before the generation opener.
    `source` is the checkpoint resumed from (None when cold), its tier the one it came from for this request.
    """

    request_id: RequestId
    prompt_tokens: int
    reused_tokens: int
    matched_tokens: int
    reason: ResumeReason
    source: CheckpointInfo | None
    borders: tuple[int, ...]
    token_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """Prompt tokens computed so far (counting the reused ones)."""

    request_id: RequestId
    prompt_tokens_done: int


class DeltaKind(StrEnum):
    REASONING = "reasoning"
    TEXT = "text"
    TOOL_CALL = "tool_call"


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of output. A TOOL_CALL delta carries one complete call (`name`, `arguments` JSON text) in `call`;
    REASONING and TEXT carry `text`. Pieces never split a character.
    """

    request_id: RequestId
    kind: DeltaKind
    text: str = ""
    call: tuple[str, str] | None = None
    tokens: int = 0

    def __reduce__(self) -> tuple[type["Delta"], tuple[object, ...]]:
        """One is sent for nearly every token, and a dataclass with slots is pickled slowly by default."""
        return Delta, (self.request_id, self.kind, self.text, self.call, self.tokens)


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Finished:
    """End of a request. `ledger` replays this turn's exact tokens; `checkpoints` are those made or touched by it.

    `output_tokens` counts all generated tokens, the end token included; `reasoning_tokens` those inside the reasoning block.
    `reused_tokens` are the prompt tokens that were not computed, less what had to be computed again after the request
    had made way for another (at least 0): `Started.reused_tokens` unless it did.
    """

    request_id: RequestId
    reason: FinishReason
    output_tokens: int
    reasoning_tokens: int
    reused_tokens: int
    ledger: LedgerEntry | None
    checkpoints: tuple[CheckpointInfo, ...]


class RejectCode(StrEnum):
    """MEMORY_PINNED: nothing else runs, and what the prompt needs is held by pinned continuations; it passes with the pins."""

    CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
    QUEUE_FULL = "queue_full"
    INVALID_PROMPT = "invalid_prompt"
    SHUTTING_DOWN = "shutting_down"
    MEMORY_PINNED = "memory_pinned"


@dataclass(frozen=True, slots=True)
class Rejected:
    """The request was never run. `needed` and `available` are tokens where a size decided it."""

    request_id: RequestId
    code: RejectCode
    message: str
    needed: int | None = None
    available: int | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """A fault ended this request; others go on."""

    request_id: RequestId
    message: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """Checkpoints that ceased to exist, each with the tier it was in, and the reason: 'memory', 'disk limit', 'damaged', 'disk lost',
    'superseded', or the one given to Drop.
    """

    checkpoints: tuple[CheckpointInfo, ...]
    reason: str


class PrepareOutcome(StrEnum):
    """How a Prepare ended. REPLACED: by a newer one; TAKEN_UP: a request of the continuation came, and goes on from what there is;
    NO_ROOM: without loss to others there's no memory for it, or too many are waiting; REJECTED: it can never be computed.
    """

    DONE = "done"
    REPLACED = "replaced"
    TAKEN_UP = "taken_up"
    CANCELLED = "cancelled"
    NO_ROOM = "no_room"
    REJECTED = "rejected"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Prepared:
    """The end of a Prepare. Of `prompt_tokens` (without the opener) `computed_tokens` were computed for it; `checkpoints` are those made
    or touched by it that still exist. `message` says why, where the outcome alone doesn't.
    """

    request_id: RequestId
    outcome: PrepareOutcome
    prompt_tokens: int = 0
    computed_tokens: int = 0
    checkpoints: tuple[CheckpointInfo, ...] = ()
    message: str = ""


@dataclass(frozen=True, slots=True)
class TokenCount:
    request_id: RequestId
    tokens: int
    error: str | None = None


Command = (
    Generate
    | Cancel
    | SetRetention
    | Drop
    | Prepare
    | Prefetch
    | CountTokens
    | TakeSnapshot
    | Shutdown
)
Event = (
    Loading
    | Ready
    | Rejected
    | Started
    | Progress
    | Delta
    | Finished
    | Failed
    | Dropped
    | Prepared
    | TokenCount
    | Snapshot
)
RequestEvent = Rejected | Started | Progress | Delta | Finished | Failed


def encode_frame(message: Command | Event) -> bytes:
    """One frame: header and pickle."""
    payload = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return FRAME_HEADER.pack(len(payload)) + payload


def decode_payload(payload: bytes) -> Any:
    """The message of one frame's payload (a Command or an Event)."""
    return pickle.loads(payload)
