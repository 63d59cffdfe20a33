"""Slots, leases, checkpoints and drops: what is intended, and how it follows the engine's truth."""

import asyncio
from random import Random

import pytest
import pytest_asyncio
from storing import TENANT, Chat, Clock, checkpoint, turn, user

from ninfer_proxy.store import DropRecord, Reconciled, Store, ledger
from ninfer_proxy.types import ContinuationId, ConversationId, LineRole, ResponseId, SlotState, Tier

ONE, TWO = ConversationId("conv-1"), ConversationId("conv-2")


@pytest_asyncio.fixture
async def store(tmp_path):
    opened = await Store.open(tmp_path / "data", clock=Clock())
    yield opened
    await opened.close()


async def slots_held(store):
    return {state.conversation: state.slot for state in await store.slots()}


async def test_a_turn_puts_its_conversation_in_its_slot(store):
    held = (checkpoint(1, position=40), checkpoint(2, position=90))
    await store.commit_turn(turn("resp_1", [user("a")], [], slot=3, checkpoints=held))
    assert await store.slots() == (
        SlotState(
            slot=3,
            conversation=ONE,
            continuation=ContinuationId("cont-1"),
            role=LineRole.MAIN,
            last_used_at=1_000_000.0,
            checkpoints=held,
            tokens=90,
            bytes=1300,
        ),
    )


async def test_a_slot_has_one_conversation(store):
    await store.commit_turn(turn("resp_1", [user("a")], [], slot=3))
    await store.commit_turn(turn("resp_2", [user("b")], [], conversation="conv-2", slot=3))
    assert await slots_held(store) == {TWO: 3}
    await store.commit_turn(turn("resp_3", [user("a")], [], slot=3))
    assert await slots_held(store) == {ONE: 3}
    await store.commit_turn(turn("resp_4", [user("b")], [], conversation="conv-2", slot=1))
    assert await slots_held(store) == {TWO: 1, ONE: 3}


async def test_release_takes_slot_lease_and_state(store):
    await store.commit_turn(
        turn("resp_1", [user("a")], [], checkpoints=(checkpoint(1),), pinned_until=2e6)
    )
    await store.release_slots([ONE])
    assert await store.slots() == ()
    known = await store.conversation(ONE)
    assert (known.slot, known.pinned_until, known.checkpoints) == (None, None, ())


async def test_a_turn_lengthens_a_lease_and_never_shortens_it(store):
    chat = Chat()
    await store.commit_turn(chat.turn("a", pinned_until=1_000_900.0))
    await store.commit_turn(chat.turn("b", pinned_until=1_000_500.0))
    assert (await store.slots())[0].pinned_until == 1_000_900.0
    await store.set_pin(ONE, 1_005_000.0)
    await store.commit_turn(chat.turn("c"))
    assert (await store.slots())[0].pinned_until == 1_005_000.0
    await store.set_pin(ONE, None)
    assert (await store.slots())[0].pinned_until is None


async def test_turns_merge_checkpoints_and_take_off_what_was_dropped(store):
    chat = Chat()
    await store.commit_turn(chat.turn("a", checkpoints=(checkpoint(1, position=10),)))
    moved = checkpoint(1, position=10, tier=Tier.HOST)
    await store.commit_turn(
        chat.turn("b", checkpoints=(checkpoint(3, position=30), moved, checkpoint(2, "cont-9")))
    )
    assert (await store.slots())[0].checkpoints == (moved, checkpoint(3, position=30))
    gone = DropRecord(1_000_001.0, "superseded", (moved,))
    await store.record_drops([gone])
    await store.commit_turn(chat.turn("c", checkpoints=(checkpoint(4),)))
    assert [c.checkpoint for c in (await store.slots())[0].checkpoints] == ["cp3", "cp4"]
    (told,) = (await store.show(ONE)).drops
    assert (told.reason, told.tokens, told.bytes, told.at) == ("superseded", 10, 100, gone.at)


async def test_checkpoints_stay_in_the_order_they_were_made(store):
    """After a rewind the newest isn't the longest, and planning must tell them apart."""
    chat = Chat()
    long, short = checkpoint(1, position=900), checkpoint(2, position=50)
    await store.commit_turn(chat.turn("a", checkpoints=(long,)))
    await store.commit_turn(chat.turn("b", checkpoints=(short, long)))
    assert (await store.slots())[0].checkpoints == (long, short)
    newer = checkpoint(3, position=70)
    await store.reconcile({ContinuationId("cont-1"): (newer, short, long)})
    assert (await store.slots())[0].checkpoints == (long, short, newer)


async def test_drops_are_kept_by_continuation_even_of_unknown_ones(store):
    await store.commit_turn(turn("resp_1", [user("a")], [], checkpoints=(checkpoint(1),)))
    lost = (checkpoint(1), checkpoint(2, position=300), checkpoint(3, "cont-unknown"))
    await store.record_drops([DropRecord(5.0, "memory", lost)])
    (told,) = await store.recent_drops(ONE, 10)
    assert (told.tokens, told.checkpoints) == (300, lost[:2])
    assert (await store.slots())[0].checkpoints == ()


async def test_the_engines_snapshot_wins(store):
    await store.commit_turn(turn("resp_1", [user("a")], [], checkpoints=(checkpoint(1),)))
    second = checkpoint(2, "cont-2")
    await store.commit_turn(
        turn("resp_2", [user("b")], [], conversation="conv-2", slot=1, checkpoints=(second,))
    )
    demoted = checkpoint(2, "cont-2", tier=Tier.HOST)
    held = {ContinuationId("cont-2"): (demoted,), ContinuationId("cont-x"): (checkpoint(7, "x"),)}
    found = await store.reconcile(held, "engine_restarted")
    assert found == Reconciled(lost=(ONE,), unowned=(ContinuationId("cont-x"),))
    assert [state.checkpoints for state in await store.slots()] == [(), (demoted,)]
    assert await slots_held(store) == {ONE: 0, TWO: 1}
    (told,) = await store.recent_drops(ONE, 10)
    assert told.reason == "engine_restarted"
    again = await store.reconcile(held, "engine_restarted")
    assert again == Reconciled(lost=(), unowned=(ContinuationId("cont-x"),))
    assert len(await store.recent_drops(ONE, 10)) == 1


async def test_looking_reconciles_without_a_record(store):
    await store.commit_turn(turn("resp_1", [user("a")], [], checkpoints=(checkpoint(1),)))
    assert (await store.reconcile({})).lost == (ONE,)
    assert await store.recent_drops(ONE, 10) == ()


async def test_slots_are_read_once_and_then_known_from_each_write(store, monkeypatch):
    assert await store.slots() == ()
    looks = count_looks(store, monkeypatch)
    for number in range(3):
        name = f"conv-{number}"
        await store.commit_turn(turn(name, [user("a")], [], conversation=name, slot=number))
        for _ in range(3):
            assert len(await store.slots()) == number + 1
    await asyncio.gather(*(store.release_slots([f"conv-{number}"]) for number in range(3)))
    assert await store.slots() == ()
    assert looks == []


async def test_slots_are_read_again_after_a_write_that_failed(store, monkeypatch):
    await store.commit_turn(turn("resp_1", [user("a")], [], slot=3))
    looks = count_looks(store, monkeypatch)

    def broken(connection):
        ledger.release_slots(connection, [ONE])
        raise ValueError("in the midst of it")

    with pytest.raises(ValueError, match="midst"):
        await store._database.write(broken)
    assert await slots_held(store) == {ONE: 3}
    assert await slots_held(store) == {ONE: 3}
    assert len(looks) == 1


def count_looks(store, monkeypatch):
    """Grows by one with each read of the slots that isn't part of a write."""
    looks, look = [], store._database._look_again

    async def counted():
        looks.append(1)
        await look()

    monkeypatch.setattr(store._database, "_look_again", counted)
    return looks


@pytest.mark.parametrize("seed", range(4))
async def test_what_is_known_of_the_slots_is_what_is_stored(store, seed):
    """Each write reads only what it was about; nothing else of the slots may have changed by it."""
    random = Random(seed)
    for number in range(60):
        which = random.randrange(6)
        name = ConversationId(f"conv-{which}")
        move = random.randrange(8)
        if move < 3:
            held = (checkpoint(number, continuation=f"cont-{which}", position=number + 1),)
            record = turn(
                f"resp_{number}",
                [user(name)],
                [],
                conversation=name,
                slot=random.choice((None, 0, 1, 2, 3)),
                checkpoints=held,
            )
            await store.commit_turn(record)
        elif move == 3:
            await store.release_slots([name])
        elif move == 4:
            await store.set_pin(name, random.choice((None, 2e6)))
        elif move == 5:
            held = [each for slot in await store.slots() for each in slot.checkpoints]
            if held:
                await store.record_drops([DropRecord(1.0, "memory", (random.choice(held),))])
        elif move == 6:
            await store.delete_response(TENANT, ResponseId(f"resp_{random.randrange(60)}"))
        else:
            await store.sweep(random.choice((0.0, 2e6)))
        stored = await store._database.read(ledger.slot_conversations, None, None)
        assert await store.slot_conversations() == stored
