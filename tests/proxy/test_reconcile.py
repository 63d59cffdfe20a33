"""An engine that is ready again: what its disk kept stays on the records, what nobody owns is given up, what counts is told anew."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from storing import Chat, Clock, checkpoint, turn, user

from engine.api import CheckpointInfo, ContinuationId, ContinuationInfo, Ready, Retention, TenantKey
from ninfer_proxy.backends.scripted import ScriptedBackend
from ninfer_proxy.errors import StoreUnavailable
from ninfer_proxy.planning.policy import Policy
from ninfer_proxy.store import Store
from ninfer_proxy.turn.in_flight import InFlight
from ninfer_proxy.turn.reconcile import RESTARTED, Reconciler
from ninfer_proxy.types import ConversationId, LineRole, SlotState, StoredLine, Tier

ONE = ConversationId("conv-1")


class Told(ScriptedBackend):
    """Remembers what it is told to forget and what things are worth."""

    def __init__(self) -> None:
        super().__init__()
        self.forgotten: list[ContinuationId] = []
        self.worth: dict[ContinuationId, Retention] = {}

    def drop(self, continuation, reason, checkpoints=None):  # type: ignore[no-untyped-def]
        self.forgotten.append(continuation)

    def set_retention(self, entries):  # type: ignore[no-untyped-def]
        self.worth = {each.continuation: each for each in entries}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await Store.open(tmp_path, clock=Clock())
    yield opened
    await opened.close()


def ready(*held: tuple[str, tuple[CheckpointInfo, ...]]) -> Ready:
    found = tuple(
        ContinuationInfo(ContinuationId(name), TenantKey("t"), checkpoints, 1)
        for name, checkpoints in held
    )
    return Ready("demo", "w", "t", 1024, 1, "cpu", found)


def reconciler(store: Store, in_flight: InFlight | None = None) -> Reconciler:
    return Reconciler(store, Policy(), in_flight or InFlight(), Clock())


async def test_what_the_disk_kept_stays_and_the_rest_is_lost(store: Store) -> None:
    kept, lost = checkpoint(1, position=50), checkpoint(2, position=90)
    await store.commit_turn(turn("resp_1", [user("a")], [], checkpoints=(kept, lost)))
    backend, on_disk = Told(), checkpoint(1, position=50, tier=Tier.DISK)
    await reconciler(store).engine_ready(backend, ready(("cont-1", (on_disk,))))
    (slot,) = await store.slots()
    assert slot.checkpoints == (on_disk,)
    (told,) = await store.recent_drops(ONE, 10)
    assert (told.reason, told.checkpoints) == (RESTARTED, (lost,))
    assert backend.forgotten == []
    assert backend.worth.keys() == {"cont-1"}


async def test_nothing_kept_is_as_before(store: Store) -> None:
    await store.commit_turn(turn("resp_1", [user("a")], [], checkpoints=(checkpoint(1),)))
    await reconciler(store).engine_ready(Told(), ready())
    assert (await store.slots())[0].checkpoints == ()


async def test_what_nobody_owns_is_given_up(store: Store) -> None:
    """A continuation of no record, and that of a conversation whose slot was given to another."""
    chat = Chat()
    await store.commit_turn(chat.turn("a", slot=2, checkpoints=(checkpoint(1),)))
    await store.release_slots([ONE])
    backend = Told()
    held = (("cont-1", (checkpoint(1, tier=Tier.DISK),)), ("cont-x", (checkpoint(7, "cont-x"),)))
    await reconciler(store).engine_ready(backend, ready(*held))
    assert sorted(backend.forgotten) == ["cont-1", "cont-x"]
    stored = await store.conversation(ONE)
    assert stored is not None
    assert stored.checkpoints == ()


async def test_a_first_turn_that_runs_is_nobody_s_yet_but_spared(store: Store) -> None:
    in_flight, name = InFlight(), ConversationId("conv-new")
    line = StoredLine(name, "", LineRole.MAIN, "f", b"", (), None, 0.0)  # type: ignore[arg-type]
    slot = SlotState(0, name, ContinuationId("cont-new"), LineRole.MAIN, 0.0)
    in_flight.begin(TenantKey("t"), None, line, slot)
    backend = Told()
    held = ("cont-new", (checkpoint(7, "cont-new", tier=Tier.DISK),))
    await reconciler(store, in_flight).engine_ready(backend, ready(held))
    assert backend.forgotten == []
    assert backend.worth.keys() == {"cont-new"}


async def test_a_store_in_trouble_is_left_alone(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(*_: object) -> None:
        raise StoreUnavailable("it is away")

    monkeypatch.setattr(store, "reconcile", refuse)
    backend = Told()
    await reconciler(store).engine_ready(backend, ready(("cont-x", (checkpoint(7, "cont-x"),))))
    assert backend.forgotten == []
    assert "it is away" in caplog.text
