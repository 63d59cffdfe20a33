"""What planning sees of turns that run: their conversations, slots and numbers before the store knows of them."""

from planning_values import NOW, slot

from ninfer_proxy.planning.plan import plan_turn
from ninfer_proxy.planning.policy import Policy
from ninfer_proxy.turn.in_flight import InFlight
from ninfer_proxy.types import (
    ConversationId,
    Head,
    ItemDigest,
    LineRole,
    Match,
    MatchKind,
    PromptLayout,
    SlotState,
    StoredLine,
    TenantKey,
)

TENANT = TenantKey("t")


def begin(running: InFlight, state: SlotState) -> None:
    head = Head(ItemDigest(b"t" * 16), ItemDigest(b"i" * 16))
    line = StoredLine(state.conversation, "", state.role, "", head, (), None, NOW)
    running.begin(TENANT, None, line, state)


def test_turns_are_counted_until_they_end() -> None:
    running, stored = InFlight(), (slot(0), slot(1))
    begin(running, slot(0))
    begin(running, slot(0))
    begin(running, slot(7))
    assert [(each.slot, each.in_flight) for each in running.slots(stored)] == [
        (0, 2),
        (1, 0),
        (7, 1),
    ]
    running.end(ConversationId("c0"))
    running.end(ConversationId("c7"))
    assert [(each.slot, each.in_flight) for each in running.slots(stored)] == [(0, 1), (1, 0)]
    assert running.turns == 1


def test_a_side_line_that_becomes_a_main_line_holds_its_new_slot_at_once() -> None:
    """Two conversations that begin at the same time must not get one number."""
    scratch = slot(1000, role=LineRole.SIDE)
    running = InFlight()
    begin(running, _moved(scratch, 0))
    seen = running.slots((scratch,))
    assert [(each.slot, each.role) for each in seen] == [(0, LineRole.MAIN)]
    fresh = Match(MatchKind.NEW, LineRole.MAIN, None, 0, ())
    plan = plan_turn(fresh, seen, ConversationId("new"), PromptLayout(0, 1), Policy(), NOW)
    assert plan.slot == 1


def _moved(state: SlotState, number: int) -> SlotState:
    return SlotState(number, state.conversation, state.continuation, LineRole.MAIN, NOW)


def test_a_slot_that_was_given_up_is_free_before_the_records_say_so() -> None:
    running, stored = InFlight(), (slot(0), slot(1))
    gone = ConversationId("c0")
    running.hide([gone])
    running.hide([gone])
    assert [each.slot for each in running.slots(stored)] == [1]
    begin(running, slot(0))
    assert [(each.slot, each.in_flight) for each in running.slots(stored)] == [(1, 0), (0, 1)]
    running.end(gone)
    running.show([gone])
    assert [each.slot for each in running.slots(stored)] == [1]
    running.show([gone])
    assert [each.slot for each in running.slots(stored)] == [0, 1]


def test_moves_concern_those_who_may_be_meant() -> None:
    running, other = InFlight(), TenantKey("other")
    begin(running, slot(0))
    with running.watch(TENANT) as mine, running.watch(other) as theirs:
        running.end(ConversationId("c0"))
    begin(running, slot(1))
    assert mine.concern("", None, {ConversationId("c0")})
    assert not mine.concern("", None, {ConversationId("c1")})
    assert not theirs.concern("", None, {ConversationId("c0")})
