"""What the engine is told of the slots' worth: what is new to it, and everything when it is new itself."""

from dataclasses import replace

from planning_values import NOW, slot

from ninfer_proxy.backends.base import BackendStatus
from ninfer_proxy.backends.scripted import ScriptedBackend
from ninfer_proxy.planning.eviction import retention
from ninfer_proxy.planning.policy import Policy
from ninfer_proxy.turn.worth import Worth
from ninfer_proxy.types import Retention

POLICY = Policy()


class Engine(ScriptedBackend):
    """Remembers what it was last told, each time."""

    def __init__(self) -> None:
        super().__init__()
        self.generation = 1
        self.told: list[list[Retention]] = []

    def status(self) -> BackendStatus:
        return replace(super().status(), generation=self.generation)

    def set_retention(self, entries: object) -> None:
        assert isinstance(entries, list)
        self.told.append(entries)


def test_a_turn_tells_of_its_own_conversation_alone() -> None:
    engine = Engine()
    worth = Worth(engine, POLICY, lambda: NOW)
    slots = [slot(number) for number in range(50)]
    worth.tell(slots)
    slots[7] = replace(slots[7], last_used_at=NOW)
    worth.tell(slots)
    worth.tell(slots)
    assert engine.told == [
        [*retention([slot(n) for n in range(50)], NOW, POLICY)],
        [*retention(slots[7:8], NOW, POLICY)],
        [],
    ]


def test_slots_that_age_into_another_class_are_told_again() -> None:
    engine, now = Engine(), [NOW]
    worth = Worth(engine, POLICY, lambda: now[0])
    slots = [slot(0, unused_s=0), slot(1, unused_s=1000)]
    worth.tell(slots)
    now[0] += POLICY.recent_s - 500
    worth.tell(slots)
    assert [each.continuation for each in engine.told[1]] == ["c1"]
    assert engine.told[1] == [*retention(slots[1:], now[0], POLICY)]


def test_a_new_engine_process_is_told_everything() -> None:
    engine = Engine()
    worth = Worth(engine, POLICY, lambda: NOW)
    slots = [slot(number) for number in range(3)]
    worth.tell(slots)
    engine.generation = 2
    worth.tell(slots)
    assert engine.told[0] == engine.told[1]


def test_a_slot_given_up_and_held_again_is_told_again() -> None:
    engine = Engine()
    worth = Worth(engine, POLICY, lambda: NOW)
    slots = [slot(number) for number in range(3)]
    for some in (slots, slots[:2], slots):
        worth.tell(some)
    assert [[each.continuation for each in told] for told in engine.told] == [
        ["c0", "c1", "c2"],
        [],
        ["c2"],
    ]
