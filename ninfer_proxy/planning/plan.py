"""A turn's plan: its slot, its anchors, what must go for it, what its continuation is worth. Decides; carries out nothing.

0 … slots-1            main lines (without a cap: any lower number that is free)
slots … +scratch-1     side requests, least recently used first
beyond                 where all the slots of its sort are running or pinned: a turn is never refused for a number
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count

from ninfer_proxy.habits import Habits
from ninfer_proxy.planning.anchors import NO_HABITS, wanted_anchors
from ninfer_proxy.planning.eviction import retention_of, victims
from ninfer_proxy.planning.losses import no_slot
from ninfer_proxy.planning.policy import Policy
from ninfer_proxy.planning.resume import expected_tokens
from ninfer_proxy.types import (
    ContinuationId,
    ConversationId,
    Eviction,
    LineRole,
    Match,
    PromptLayout,
    SlotState,
    TurnPlan,
)

FIRST_SCRATCH_WITHOUT_CAP = 1000


def plan_turn(
    match: Match,
    slots: Sequence[SlotState],
    conversation: ConversationId,
    layout: PromptLayout,
    policy: Policy,
    now: float,
    *,
    branch: int | None = None,
    habits: Habits = NO_HABITS,
) -> TurnPlan:
    """The plan of a turn of `conversation` (for a new one the id it will have). Linear in slots.

    `branch` messages of the prompt stand before the first item that differs from the stored line. `habits` are those of
    the client's family.
    """
    held = next((slot for slot in slots if slot.conversation == conversation), None)
    others = [slot for slot in slots if slot.conversation != conversation]
    place = _place(match.role, held, others, policy, now)
    state = held or SlotState(
        slot=place.slot,
        conversation=conversation,
        continuation=ContinuationId(conversation),
        role=match.role,
        last_used_at=now,
    )
    running = replace(state, role=match.role, last_used_at=now, in_flight=state.in_flight + 1)
    return TurnPlan(
        conversation=conversation,
        continuation=state.continuation,
        slot=place.slot,
        role=match.role,
        anchors=wanted_anchors(layout, match.role, policy, branch, habits),
        ladder_tokens=policy.ladder_tokens if match.role is LineRole.MAIN else None,
        retention=retention_of(running, now, policy),
        evictions=place.evictions,
        expected_tokens=expected_tokens(held, match),
    )


@dataclass(frozen=True, slots=True)
class _Place:
    slot: int
    evictions: tuple[Eviction, ...] = ()


def _place(
    role: LineRole,
    held: SlotState | None,
    others: Sequence[SlotState],
    policy: Policy,
    now: float,
) -> _Place:
    """A conversation keeps the slot it holds. One that turned from a side request into a main line moves to a main slot."""
    peers = [slot for slot in others if slot.role is role]
    keeps = held is not None and held.role is role
    limit = policy.slots if role is LineRole.MAIN else policy.scratch_slots
    surplus = 0 if limit is None else len(peers) + 1 - limit
    gone = victims(peers, now, policy, surplus) if surplus > 0 else ()
    why = "" if limit is None else no_slot(role, limit)
    evictions = tuple(
        Eviction(slot.slot, slot.conversation, slot.continuation, why) for slot in gone
    )
    if held is not None and keeps:
        return _Place(held.slot, evictions)
    taken = {slot.slot for slot in others} - {slot.slot for slot in gone}
    return _Place(next(n for n in _numbers(role, policy) if n not in taken), evictions)


def _numbers(role: LineRole, policy: Policy) -> Iterable[int]:
    """Slot numbers in the order they are given to a role."""
    scratch = FIRST_SCRATCH_WITHOUT_CAP if policy.slots is None else policy.slots
    beyond = scratch + policy.scratch_slots
    own = range(scratch) if role is LineRole.MAIN else range(scratch, beyond)
    yield from own
    yield from count(beyond)
