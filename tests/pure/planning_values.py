"""Slots, checkpoints and engine answers in short, for the planning tests."""

from typing import Any

from ninfer_proxy.types import (
    AnchorKind,
    CheckpointId,
    CheckpointInfo,
    ContinuationId,
    ConversationId,
    LineRole,
    Match,
    MatchKind,
    SlotState,
    Tier,
)

NOW = 1_000_000.0


def checkpoint(kind: AnchorKind, position: int, tier: Tier = Tier.DEVICE) -> CheckpointInfo:
    """Its id says what it is: `tip@300`."""
    name = CheckpointId(f"{kind}@{position}")
    return CheckpointInfo(name, ContinuationId("c"), kind, position, tier, 1)


def slot(number: int, unused_s: float = 10.0, **more: Any) -> SlotState:
    name = f"c{number}"
    known = {"role": LineRole.MAIN, "last_used_at": NOW - unused_s} | more
    return SlotState(number, ConversationId(name), ContinuationId(name), **known)


def match(conversation: str | None = "c0", **more: Any) -> Match:
    known = {
        "kind": MatchKind.CONTINUES if conversation else MatchKind.NEW,
        "role": LineRole.MAIN,
        "conversation": conversation and ConversationId(conversation),
        "shared": 1,
        "evidence": ("header session-id = s1",),
    }
    return Match(**(known | more))


def side(conversation: str | None = None, **more: Any) -> Match:
    known = {"kind": MatchKind.SIDE, "role": LineRole.SIDE, "side_kind": "title"} | more
    return match(conversation, **known)
