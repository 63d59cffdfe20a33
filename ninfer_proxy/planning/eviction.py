"""What each slot and each checkpoint is worth when memory runs short. Knows slots as values; frees nothing itself.

Classes, most worth keeping first: running, waiting for a tool, recently used, idle, finished sub-agent, side request. Within a
class the least recently used goes first; size never decides. Linear in slots and checkpoints.
"""

from collections.abc import Mapping, Sequence
from heapq import nsmallest
from operator import attrgetter

from ninfer_proxy.planning.pins import is_pinned
from ninfer_proxy.planning.policy import Policy
from ninfer_proxy.types import (
    AnchorKind,
    CheckpointId,
    CheckpointInfo,
    LineRole,
    Retention,
    SlotClass,
    SlotState,
)

PRIORITY: Mapping[SlotClass, int] = {
    SlotClass.SIDE: 0,
    SlotClass.FINISHED_SUBAGENT: 1,
    SlotClass.IDLE: 2,
    SlotClass.RECENT: 3,
    SlotClass.WAITING_FOR_TOOL: 4,
    SlotClass.RUNNING: 5,
}
# How many of a kind are kept, the newest first. Of prompt ends the policy says it, of rungs their distance. More heads than one
# stand where a client keeps changing its instructions.
_KEPT: Mapping[AnchorKind, int] = {
    AnchorKind.REWIND: 1,
    AnchorKind.TIP: 1,
    AnchorKind.TRANSIENT: 1,
    AnchorKind.BRANCH: 2,
    AnchorKind.EXPLICIT: 4,
    AnchorKind.HEAD: 4,
}
_EXPENDED_FIRST = (
    AnchorKind.REWIND,
    AnchorKind.TIP,
    AnchorKind.TRANSIENT,
    AnchorKind.PROMPT_END,
    AnchorKind.EXPLICIT,
    AnchorKind.BRANCH,
    AnchorKind.HEAD,
)
_DENSE_RUNGS = 4
_AGE = attrgetter("last_used_at", "slot")


def slot_class(slot: SlotState, now: float, policy: Policy) -> SlotClass:
    """What the slot's conversation is doing."""
    if slot.in_flight:
        return SlotClass.RUNNING
    if slot.role is LineRole.SIDE:
        return SlotClass.SIDE
    unused_s = now - slot.last_used_at
    is_recent = unused_s < policy.recent_s
    if slot.waiting_for_tool and unused_s < policy.tool_wait_s:
        return SlotClass.WAITING_FOR_TOOL
    # A sub-agent whose tool takes longer than most isn't finished.
    if slot.is_subagent and not (slot.waiting_for_tool and is_recent):
        return SlotClass.FINISHED_SUBAGENT
    return SlotClass.RECENT if is_recent else SlotClass.IDLE


def victims(
    slots: Sequence[SlotState], now: float, policy: Policy, count: int | None = None
) -> tuple[SlotState, ...]:
    """The slots that may be given up, the least worth first; `count` of them at most. Running and pinned ones may not."""
    free = [slot for slot in slots if not slot.in_flight and not is_pinned(slot, now)]

    def worth(slot: SlotState) -> tuple[int, float, int]:
        return PRIORITY[slot_class(slot, now, policy)], slot.last_used_at, slot.slot

    if count is None:
        return tuple(sorted(free, key=worth))
    # Main lines that only age tells apart are worth less the older they are: of those only the oldest are weighed.
    plain: list[SlotState] = []
    others: list[SlotState] = []
    for slot in free:
        special = slot.waiting_for_tool or slot.is_subagent or slot.role is LineRole.SIDE
        (others if special else plain).append(slot)
    return tuple(nsmallest(count, [*nsmallest(count, plain, key=_AGE), *others], key=worth))


def retention(slots: Sequence[SlotState], now: float, policy: Policy) -> tuple[Retention, ...]:
    """What the engine is told about each continuation, ahead of need."""
    return tuple(retention_of(slot, now, policy) for slot in slots)


def retention_of(slot: SlotState, now: float, policy: Policy) -> Retention:
    return Retention(
        continuation=slot.continuation,
        priority=PRIORITY[slot_class(slot, now, policy)],
        used_at=slot.last_used_at,
        pinned_until=slot.pinned_until if is_pinned(slot, now) else None,
        expendable=expendable(slot, policy),
    )


def expendable(slot: SlotState, policy: Policy) -> tuple[CheckpointId, ...]:
    """Checkpoints that newer ones of the same continuation have made worth less than any other's tip; the least worth first.

    What reaches beyond the line's end is left from before a rewind and goes first. On the line the head, the newest prompt
    end, tip and place before a transient item always stay.
    """
    end = line_end(slot.checkpoints)
    left_over = [each for each in slot.checkpoints if each.position > end]
    line = [each for each in slot.checkpoints if each.position <= end]
    worn = [each for kind in _EXPENDED_FIRST for each in _superseded(line, kind, policy)]
    rungs = [each for each in line if each.kind is AnchorKind.LADDER]
    thinned = [each for each in rungs if _is_thinned(each.position, end, policy)]
    return tuple(each.checkpoint for each in (*left_over, *worn, *thinned))


def line_end(checkpoints: Sequence[CheckpointInfo]) -> int:
    """Where the current line ends: at the tip or prompt end that was made last; the longest checkpoint if there is neither."""
    ends = (AnchorKind.TIP, AnchorKind.PROMPT_END)
    newest = next((each.position for each in reversed(checkpoints) if each.kind in ends), None)
    longest = max((each.position for each in checkpoints), default=0)
    return longest if newest is None else newest


def _superseded(
    line: Sequence[CheckpointInfo], kind: AnchorKind, policy: Policy
) -> Sequence[CheckpointInfo]:
    kept = policy.kept_prompt_ends if kind is AnchorKind.PROMPT_END else _KEPT[kind]
    return [each for each in line if each.kind is kind][:-kept]


def _is_thinned(position: int, end: int, policy: Policy) -> bool:
    """Has the line grown so far beyond this rung that its neighbours do?

    distance in rungs   0–3    4–7        8–15         ...
    kept                all    every 2nd  every 4th
    """
    rung = round(position / policy.ladder_tokens)
    distance = (end - position) // policy.ladder_tokens
    step = 1 << (distance // _DENSE_RUNGS).bit_length()
    return rung % step != 0
