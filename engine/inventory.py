"""What an engine holds, as values: checkpoints, what they are worth, lanes, tiers, and how all are named. Knows no messages.

Part of the door: clients take these from `engine.api`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NewType

ContinuationId = NewType("ContinuationId", str)
CheckpointId = NewType("CheckpointId", str)
RequestId = NewType("RequestId", str)
TenantKey = NewType("TenantKey", str)
"""Isolation domain: state made under one tenant is never read under another."""


class Tier(StrEnum):
    DEVICE = "device"
    HOST = "host"
    DISK = "disk"


class AnchorKind(StrEnum):
    """Why a position is worth a checkpoint; the engine only stores the word."""

    HEAD = "head"
    TRANSIENT = "transient"
    PROMPT_END = "prompt_end"
    REWIND = "rewind"
    TIP = "tip"
    LADDER = "ladder"
    BRANCH = "branch"
    EXPLICIT = "explicit"


@dataclass(frozen=True, slots=True)
class Anchor:
    """A wanted checkpoint: `back` tokens before the border behind the first `messages` messages of the prompt.

    The border behind all messages lies before the generation opener; the border behind 0 messages lies behind the
    tools block where the template has one.
    """

    kind: AnchorKind
    messages: int
    back: int = 0


@dataclass(frozen=True, slots=True)
class Retention:
    """What a continuation is worth when memory runs short, told ahead of time.

    Victims are taken in this order: stranded bytes, `expendable` checkpoints of any continuation (in the order given), then
    continuations by ascending (`priority`, `used_at`), oldest checkpoint first. A continuation is spared while
    `pinned_until` (Unix seconds) lies ahead.
    """

    continuation: ContinuationId
    priority: int
    used_at: float
    pinned_until: float | None = None
    expendable: tuple[CheckpointId, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """One checkpoint; `tier` is the nearest that holds it whole, `bytes` its image and the pages no other checkpoint holds there:
    what would come free without it. 0 while another continuation holds the same one too.
    """

    checkpoint: CheckpointId
    continuation: ContinuationId
    kind: AnchorKind
    position: int
    tier: Tier
    bytes: int


@dataclass(frozen=True, slots=True)
class LaneInfo:
    lane: int
    request_id: RequestId
    continuation: ContinuationId
    prompt_tokens: int
    computed_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class ContinuationInfo:
    continuation: ContinuationId
    tenant: TenantKey
    checkpoints: tuple[CheckpointInfo, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class TierUsage:
    """`note` says what is wrong with the tier, for a person; '' while all is well."""

    tier: Tier
    used_bytes: int
    total_bytes: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The engine as it is: truth that the client's records are reconciled with. `restoring` of the `waiting` requests wait for
    state to come from disk.
    """

    request_id: RequestId
    lanes: tuple[LaneInfo, ...]
    waiting: int
    continuations: tuple[ContinuationInfo, ...]
    tiers: tuple[TierUsage, ...]
    counters: Mapping[str, int] = field(default_factory=dict)
    restoring: int = 0
