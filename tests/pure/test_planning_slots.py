"""Which slot a turn gets, what must go for it, what everything is worth: no conversation ever holds two slots."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_values import NOW, checkpoint, match, side, slot

from ninfer_proxy.planning.eviction import expendable, retention, slot_class, victims
from ninfer_proxy.planning.losses import no_slot, remedy
from ninfer_proxy.planning.pins import granted, is_pinned, renewed
from ninfer_proxy.planning.plan import FIRST_SCRATCH_WITHOUT_CAP, plan_turn
from ninfer_proxy.planning.policy import Policy
from ninfer_proxy.types import (
    AnchorKind,
    ContinuationId,
    ConversationId,
    LineRole,
    PromptLayout,
    SlotClass,
    SlotState,
    TurnPlan,
)

LAYOUT = PromptLayout(head=1, messages=4)
POLICY = Policy()
ENDS = (AnchorKind.TIP, AnchorKind.PROMPT_END)


def planned(
    slots: list[SlotState], conversation: str, policy: Policy = POLICY, *, as_side: bool = False
) -> TurnPlan:
    known = conversation if any(each.conversation == conversation for each in slots) else None
    found = side(known) if as_side else match(known)
    return plan_turn(found, slots, ConversationId(conversation), LAYOUT, policy, NOW)


def gone(plan: TurnPlan) -> list[str]:
    return [each.conversation for each in plan.evictions]


# --- numbers -----------------------------------------------------------------------------------


def test_a_conversation_keeps_its_slot() -> None:
    plan = planned([slot(0), slot(7)], "c7")
    assert (plan.slot, plan.continuation, gone(plan)) == (7, "c7", [])


def test_a_new_one_gets_the_lowest_free_number() -> None:
    plan = planned([slot(0), slot(1), slot(3)], "new")
    assert (plan.slot, plan.continuation) == (2, "new")


def test_under_a_cap_the_least_worth_goes_and_its_number_is_reused() -> None:
    slots = [slot(0, 50), slot(1, 4000), slot(2, 70)]
    plan = planned(slots, "new", Policy(slots=3))
    assert (plan.slot, gone(plan)) == (1, ["c1"])
    assert plan.evictions[0].reason == "slots: 3 main lines are kept"
    assert remedy(plan.evictions[0].reason) == "More slots or a pin would have kept it."


@pytest.mark.parametrize(
    ("role", "limit", "told"),
    [
        (LineRole.MAIN, 1, "slots: 1 main line is kept"),
        (LineRole.SIDE, 1, "scratch slots: 1 side request is kept"),
        (LineRole.SIDE, 0, "scratch slots: 0 side requests are kept"),
    ],
)
def test_the_reason_of_an_eviction_names_the_setting(role: LineRole, limit: int, told: str) -> None:
    assert no_slot(role, limit) == told
    assert remedy(told) == "More slots or a pin would have kept it."


def test_running_and_pinned_slots_are_never_taken() -> None:
    slots = [slot(0, 9000, in_flight=1), slot(1, 9000, pinned_until=NOW + 1), slot(2, 5)]
    assert gone(planned(slots, "new", Policy(slots=3))) == ["c2"]
    busy = [slot(0, in_flight=1), slot(1, pinned_until=NOW + 1)]
    plan = planned(busy, "new", Policy(slots=2, scratch_slots=2))
    assert (plan.slot, gone(plan)) == (4, [])
    ended = [slot(0, in_flight=1), slot(1, pinned_until=NOW - 1)]
    assert gone(planned(ended, "new", Policy(slots=2))) == ["c1"]


def test_what_is_beyond_the_cap_goes_as_soon_as_it_may() -> None:
    slots = [slot(0), slot(1), slot(6, 20)]
    assert gone(planned(slots, "c0", Policy(slots=2))) == ["c6"]


def test_side_requests_share_a_few_scratch_slots() -> None:
    policy = Policy(slots=2, scratch_slots=2)
    slots = [slot(0, 9000), slot(1, 9000)]
    first = planned(slots, "s1", policy, as_side=True)
    assert (first.slot, first.role, gone(first)) == (2, LineRole.SIDE, [])
    scratch = [slot(2, 30, role=LineRole.SIDE), slot(3, 60, role=LineRole.SIDE)]
    plan = planned([*slots, *scratch], "s3", policy, as_side=True)
    assert (plan.slot, gone(plan)) == (3, ["c3"])
    assert plan.ladder_tokens is None
    uncapped = planned(slots, "s1", as_side=True)
    assert uncapped.slot == FIRST_SCRATCH_WITHOUT_CAP


def test_a_side_line_that_became_a_main_line_moves_to_a_main_slot() -> None:
    slots = [slot(0), slot(1000, role=LineRole.SIDE)]
    plan = planned(slots, "c1000")
    assert (plan.slot, plan.role, plan.continuation) == (1, LineRole.MAIN, "c1000")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 8), st.booleans(), st.booleans()), max_size=40),
    st.none() | st.integers(1, 4),
)
def test_one_slot_a_conversation_and_no_number_twice(
    turns: list[tuple[int, bool, bool]], cap: int | None
) -> None:
    policy = Policy(slots=cap, scratch_slots=2)
    held: dict[str, SlotState] = {}
    for step, (number, is_side, stays_running) in enumerate(turns):
        name = f"{'side' if is_side else 'main'}{number}"
        mains = {each for each, state in held.items() if state.role is LineRole.MAIN}
        plan = planned(list(held.values()), name, policy, as_side=is_side)
        for eviction in plan.evictions:
            assert not held[eviction.conversation].in_flight
            assert eviction.conversation not in mains or not is_side
            del held[eviction.conversation]
        held[name] = SlotState(
            slot=plan.slot,
            conversation=ConversationId(name),
            continuation=plan.continuation,
            role=plan.role,
            last_used_at=NOW - 100 + step,
            in_flight=int(stays_running),
        )
        assert len({state.slot for state in held.values()}) == len(held)
        peers = [state for state in held.values() if state.role is plan.role]
        limit = policy.scratch_slots if is_side else cap
        if limit is not None and len(peers) > limit:
            assert all(state.in_flight for state in peers if state.conversation != name)


# --- worth -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (slot(0, 9000, in_flight=1, role=LineRole.SIDE), SlotClass.RUNNING),
        (slot(0, 119, waiting_for_tool=True), SlotClass.WAITING_FOR_TOOL),
        (slot(0, 120, waiting_for_tool=True), SlotClass.RECENT),
        (slot(0, 119, waiting_for_tool=True, is_subagent=True), SlotClass.WAITING_FOR_TOOL),
        (slot(0, 120, waiting_for_tool=True, is_subagent=True), SlotClass.RECENT),
        (slot(0, 1800, waiting_for_tool=True, is_subagent=True), SlotClass.FINISHED_SUBAGENT),
        (slot(0, 90_000, waiting_for_tool=True), SlotClass.IDLE),
        (slot(0, 1799), SlotClass.RECENT),
        (slot(0, 1800), SlotClass.IDLE),
        (slot(0, 5, is_subagent=True), SlotClass.FINISHED_SUBAGENT),
        (slot(0, 5, role=LineRole.SIDE, waiting_for_tool=True), SlotClass.SIDE),
    ],
)
def test_classes(state: SlotState, expected: SlotClass) -> None:
    assert slot_class(state, NOW, POLICY) is expected


def test_victims_go_by_class_then_by_age_never_by_size() -> None:
    slots = [
        slot(0, 5, waiting_for_tool=True),
        slot(1, 900, tokens=9, bytes=9),
        slot(2, 100, tokens=900_000, bytes=10**9),
        slot(3, 5000),
        slot(4, 1, is_subagent=True),
        slot(5, 1, role=LineRole.SIDE),
        slot(6, 1, in_flight=1),
        slot(7, 99_999, pinned_until=NOW + 60),
    ]
    assert [each.slot for each in victims(slots, NOW, POLICY)] == [5, 4, 3, 1, 2, 0]
    for count in (0, 1, 4, 9):
        assert victims(slots, NOW, POLICY, count) == victims(slots, NOW, POLICY)[:count]


def test_the_engine_is_told_the_same_order() -> None:
    slots = [slot(0, 5, waiting_for_tool=True), slot(1, 900), slot(2, 5, pinned_until=NOW + 60)]
    told = retention(slots, NOW, POLICY)
    assert [each.priority for each in told] == [4, 3, 3]
    assert [each.pinned_until for each in told] == [None, None, NOW + 60]
    assert [each.used_at for each in told] == [each.last_used_at for each in slots]


def test_the_turn_that_runs_is_worth_most() -> None:
    plan = planned([slot(0, 9000, pinned_until=NOW + 60)], "c0")
    assert (plan.retention.priority, plan.retention.used_at) == (5, NOW)
    assert plan.retention.pinned_until == NOW + 60


# --- checkpoints of one continuation -----------------------------------------------------------


def expended(kinds: list[tuple[AnchorKind, int]]) -> list[str]:
    """What is expendable of checkpoints made in this order."""
    state = slot(0, checkpoints=tuple(checkpoint(kind, at) for kind, at in kinds))
    return list(expendable(state, POLICY))


def test_newer_checkpoints_supersede_older_ones() -> None:
    turns = range(1000, 7000, 1000)
    kinds = [(AnchorKind.HEAD, 500)]
    for at in turns:
        kinds += [
            (AnchorKind.REWIND, at - 256),
            (AnchorKind.PROMPT_END, at),
            (AnchorKind.TIP, at + 90),
        ]
    told = expended(kinds)
    rewinds = [f"rewind@{at - 256}" for at in turns][:-1]
    tips = [f"tip@{at + 90}" for at in turns][:-1]
    assert told == [*rewinds, *tips, "prompt_end@1000", "prompt_end@2000"]


def test_the_place_before_a_transient_item_stays() -> None:
    kinds = [(AnchorKind.HEAD, 500), (AnchorKind.TRANSIENT, 800), (AnchorKind.TRANSIENT, 1800)]
    assert expended(kinds) == ["transient@800"]


def test_what_a_rewind_left_behind_goes_first() -> None:
    before = [
        (AnchorKind.HEAD, 500),
        (AnchorKind.PROMPT_END, 90_000),
        (AnchorKind.TIP, 90_100),
    ]
    compacted = [(AnchorKind.PROMPT_END, 3000), (AnchorKind.TIP, 3100)]
    assert expended([*before, *compacted]) == ["prompt_end@90000", "tip@90100"]
    assert expended([*before, (AnchorKind.PROMPT_END, 3000)]) == ["prompt_end@90000", "tip@90100"]
    asked_again = [(AnchorKind.TIP, 90_050)]
    assert expended([*before, *asked_again]) == ["tip@90100"]


def test_the_ladder_thins_with_distance() -> None:
    rungs = [(AnchorKind.LADDER, number * POLICY.ladder_tokens) for number in range(1, 33)]
    dropped = set(expended(rungs))
    kept = [at // POLICY.ladder_tokens for kind, at in rungs if f"{kind}@{at}" not in dropped]
    assert kept == [8, 16, 20, 24, 26, 28, 29, 30, 31, 32]
    grown = [
        *rungs,
        *((AnchorKind.LADDER, number * POLICY.ladder_tokens) for number in range(33, 65)),
    ]
    assert dropped <= set(expended(grown))


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(AnchorKind), st.integers(1, 400_000)), max_size=40, unique=True
    )
)
def test_what_the_next_turn_needs_is_never_expendable(kinds: list[tuple[AnchorKind, int]]) -> None:
    told = expended(kinds)
    assert len(told) == len(set(told))
    last_end = next((at for kind, at in reversed(kinds) if kind in ENDS), None)
    for kind in (*ENDS, AnchorKind.TRANSIENT):
        on_line = [at for each, at in kinds if each is kind and at <= (last_end or at)]
        assert f"{kind}@{on_line[-1] if on_line else None}" not in told


# --- pins and resuming -------------------------------------------------------------------------


def test_a_pin_is_a_lease() -> None:
    assert granted(NOW, POLICY) == NOW + POLICY.pin_s
    assert granted(NOW, POLICY, 60) == NOW + 60
    assert renewed(None, NOW, POLICY) is None
    assert renewed(NOW - 1, NOW, POLICY) is None
    assert renewed(NOW + 1, NOW, POLICY) == NOW + POLICY.pin_s
    assert renewed(NOW + 10**6, NOW, POLICY) == NOW + 10**6
    assert is_pinned(slot(0, pinned_until=NOW + 1), NOW)
    assert not is_pinned(slot(0, pinned_until=NOW), NOW)


def test_a_thousand_slots_are_planned_without_looking_at_each_twice() -> None:
    """Work grows with the number of slots, not with its square: counted in comparisons of conversations."""
    compared = 0

    class Counted(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)  # type: ignore[arg-type]

        __hash__ = str.__hash__

    slots = [
        SlotState(n, ConversationId(Counted(f"c{n}")), ContinuationId(f"c{n}"), LineRole.MAIN, NOW)
        for n in range(1000)
    ]
    plan = planned(slots, "new", Policy(slots=1000))
    assert len(plan.evictions) == 1
    assert compared < 10 * len(slots)
