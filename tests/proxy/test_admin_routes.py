"""The admin API over a real store: what it shows, what it does to store and engine, and whom it lets in."""

from contextlib import asynccontextmanager
from dataclasses import replace

import httpx
import pytest
import pytest_asyncio
from starlette.applications import Starlette
from storing import Chat, Clock, checkpoint, turn, user

from engine.api import ContinuationInfo, LaneInfo, RequestId, Snapshot, TierUsage
from ninfer_proxy.admin.routes import admin_routes
from ninfer_proxy.admin.service import Admin
from ninfer_proxy.backends.scripted import ScriptedBackend
from ninfer_proxy.errors import EngineUnavailable
from ninfer_proxy.http.errors import error_handlers
from ninfer_proxy.metrics import Metrics
from ninfer_proxy.planning.policy import Policy
from ninfer_proxy.store import DropRecord, Store
from ninfer_proxy.types import ContinuationId, ConversationId, LineRole, SlotState, TenantKey, Tier

NOW = 1_000_000.0
TOKEN = "admin-token-for-tests"


class KnownEngine(ScriptedBackend):
    """An engine whose snapshot is what the test says; None: it is away. Remembers what it was told."""

    def __init__(self):
        super().__init__()
        self.truth = Snapshot(RequestId(""), (), 0, (), (TierUsage(Tier.DEVICE, 256, 1024),))
        self.retentions = []
        self.drops = []

    async def snapshot(self):
        if self.truth is None:
            raise EngineUnavailable("away")
        return self.truth

    def holds(self, *checkpoints):
        by_continuation = {}
        for each in checkpoints:
            by_continuation.setdefault(each.continuation, []).append(each)
        held = tuple(
            ContinuationInfo(name, TenantKey("t"), tuple(some), sum(c.bytes for c in some))
            for name, some in by_continuation.items()
        )
        self.truth = replace(self.truth, continuations=held)

    def set_retention(self, entries):
        self.retentions.extend(entries)

    def drop(self, continuation, reason, checkpoints=None):
        self.drops.append((continuation, reason, checkpoints))


class Running:
    """Stands in for the turns in flight."""

    def __init__(self):
        self.counts = {}
        self.unstored = ()

    def slots(self, stored):
        counted = (replace(s, in_flight=self.counts.get(s.conversation, 0)) for s in stored)
        return (*counted, *self.unstored)


@pytest_asyncio.fixture
async def store(tmp_path):
    opened = await Store.open(tmp_path / "data", clock=Clock(NOW))
    yield opened
    await opened.close()


@pytest.fixture
def engine():
    return KnownEngine()


@pytest.fixture
def running():
    return Running()


@pytest.fixture
def admin(store, engine, running):
    return Admin(store, engine, Policy(), running.slots, clock=Clock(NOW))


@pytest_asyncio.fixture
async def api(admin):
    app = Starlette(routes=admin_routes(admin, TOKEN), exception_handlers=error_handlers(Metrics()))
    async with asking(app) as client:
        yield client


@asynccontextmanager
async def asking(app):
    headers = {"authorization": f"Bearer {TOKEN}"}
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://test/admin", headers=headers
    ) as client:
        yield client


async def asked(call):
    answer = await call
    assert answer.status_code == 200, answer.text
    return answer.json()


async def refused(call, status):
    answer = await call
    assert answer.status_code == status, answer.text
    return answer.json()["error"]


async def test_slots_say_what_the_engine_holds(api, store, engine):
    chat = Chat()
    await store.commit_turn(
        chat.turn("a", scope="s1", checkpoints=(checkpoint(1, position=50),), at=NOW - 60)
    )
    demoted = checkpoint(1, position=50, tier=Tier.HOST)
    engine.holds(demoted, checkpoint(2, position=90))
    (slot,) = (await asked(api.get("/slots")))["slots"]
    assert slot == {
        "slot": 0,
        "conversation": "conv-1",
        "client": "OpenAI/Python",
        "class": "recent",
        "pinned_until": None,
        "tokens": 90,
        "bytes": 1400,
        "checkpoints": [
            {"checkpoint": "cp1", "kind": "tip", "position": 50, "tier": "host", "bytes": 500},
            {"checkpoint": "cp2", "kind": "tip", "position": 90, "tier": "device", "bytes": 900},
        ],
        "last_used_at": NOW - 60,
        "in_flight": 0,
        "continuation": "cont-1",
        "role": "main",
        "hits": 1,
        "tokens_prefilled": 20,
        "tokens_reused": 80,
        "last_reason": None,
        "scope": "s1",
        "family": "plain",
        "side_kind": None,
        "parent": None,
    }


async def test_slots_are_shown_from_records_while_the_engine_is_away(api, store, engine):
    await store.commit_turn(Chat().turn("a", checkpoints=(checkpoint(1),)))
    engine.truth = None
    (slot,) = (await asked(api.get("/slots")))["slots"]
    assert [each["checkpoint"] for each in slot["checkpoints"]] == ["cp1"]
    status = await asked(api.get("/status"))
    assert (status["engine"]["state"], status["lanes"], status["tiers"]) == ("ready", None, None)


async def test_classes_and_conversations_in_their_first_turn(api, store, running):
    await store.commit_turn(turn("r1", [user("a")], [], slot=0, at=NOW - 10_000))
    await store.commit_turn(
        turn("r2", [user("b")], [], conversation="conv-2", slot=4, role=LineRole.SIDE)
    )
    running.counts = {"conv-1": 1}
    running.unstored = (
        SlotState(
            2, ConversationId("conv-new"), ContinuationId("c"), LineRole.MAIN, NOW, in_flight=1
        ),
    )
    listed = (await asked(api.get("/slots")))["slots"]
    assert [(s["slot"], s["conversation"], s["class"]) for s in listed] == [
        (0, "conv-1", "running"),
        (2, "conv-new", "running"),
        (4, "conv-2", "side"),
    ]
    error = await refused(api.post("/conversations/conv-new/pin"), 400)
    assert "first turn" in error["message"]


async def test_a_conversation_is_shown_by_id_and_by_slot(api, store):
    chat = Chat()
    await store.commit_turn(chat.turn("a", slot=7))
    lost = DropRecord(NOW - 5, "memory", (checkpoint(1, position=80),))
    await store.record_drops([lost])
    await store.commit_turn(chat.turn("b", slot=7))
    by_id = await asked(api.get("/conversations/conv-1"))
    assert by_id == await asked(api.get("/conversations/7"))
    assert (by_id["slot"], by_id["class"], by_id["items"]) == (7, "recent", 4)
    assert [each["response"] for each in by_id["responses"]] == ["resp_2", "resp_1"]
    assert [(d["reason"], d["tokens"], d["bytes"]) for d in by_id["drops"]] == [("memory", 80, 800)]
    await store.release_slots([ConversationId("conv-1")])
    assert (await asked(api.get("/conversations/conv-1")))["slot"] is None


async def test_a_response_is_explained(api, store):
    record = Chat().turn("a", effort="low")
    await store.commit_turn(record)
    told = await asked(api.get("/responses/resp_1"))
    expected = {
        "reason": "cache_hit",
        "detail": record.decision.detail,
        "difference": record.decision.difference,
        "evidence": ["chain"],
        "prompt_tokens": 100,
        "reused_tokens": 80,
        "prefilled_tokens": 20,
        "cached_tokens": 80,
        "source_tier": "device",
        "source_kind": "tip",
        "effort": "low",
        "conversation": "conv-1",
    }
    assert {key: told[key] for key in expected} == expected
    assert told["plan"]["ladder_tokens"] == 16384


async def test_a_pin_reaches_store_and_engine(api, store, engine):
    await store.commit_turn(Chat().turn("a"))
    slot = await asked(api.post("/conversations/conv-1/pin", json={"minutes": 90}))
    assert slot["pinned_until"] == NOW + 5400
    assert (await store.slots())[0].pinned_until == NOW + 5400
    assert engine.retentions[-1].pinned_until == NOW + 5400
    assert engine.retentions[-1].continuation == "cont-1"
    slot = await asked(api.delete("/conversations/0/pin"))
    assert slot["pinned_until"] is None
    assert engine.retentions[-1].pinned_until is None
    slot = await asked(api.post("/conversations/conv-1/pin"))
    assert slot["pinned_until"] == NOW + Policy().pin_s


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        (b'{"minutes": 0}', 400, "minutes"),
        (b'{"minutes": -5}', 400, "minutes"),
        (b'{"minutes": 1e300}', 400, "minutes"),
        (b'{"minutes": "long"}', 400, "minutes"),
        (b'{"minutes": true}', 400, "minutes"),
        (b"[90]", 400, None),
        (b"{", 400, None),
        (b"\xff\xfe", 400, None),
        (b" " * 5000, 413, None),
    ],
)
async def test_bad_pins_are_refused(api, store, body, status, param):
    await store.commit_turn(Chat().turn("a"))
    error = await refused(api.post("/conversations/conv-1/pin", content=body), status)
    assert error["param"] == param
    assert (await store.slots())[0].pinned_until is None


async def test_eviction_frees_slot_and_state_but_keeps_the_words(api, store, engine):
    await store.commit_turn(Chat().turn("a", checkpoints=(checkpoint(1),), pinned_until=NOW + 99))
    engine.holds(checkpoint(1))
    answer = await asked(api.post("/conversations/conv-1/evict"))
    assert answer["evicted"]["bytes"] == 1000
    assert engine.drops == [("cont-1", "evicted by the operator", None)]
    assert await store.slots() == ()
    assert (await asked(api.get("/conversations/conv-1")))["items"] == 2
    await refused(api.post("/conversations/conv-1/evict"), 404)


async def test_a_running_conversation_is_not_evicted(api, store, engine, running):
    await store.commit_turn(Chat().turn("a"))
    running.counts = {"conv-1": 1}
    error = await refused(api.post("/conversations/0/evict"), 400)
    assert error["param"] == "conversation"
    assert engine.drops == []


async def test_a_turn_that_begins_while_the_evictor_looks_keeps_its_state(
    api, store, engine, running, monkeypatch
):
    await store.commit_turn(Chat().turn("a"))
    look = store.slots

    async def overtaken():
        found = await look()
        running.counts = {"conv-1": 1}
        return found

    monkeypatch.setattr(store, "slots", overtaken)
    assert (await refused(api.post("/conversations/0/evict"), 400))["param"] == "conversation"
    assert engine.drops == []


async def test_what_was_not_used_for_the_retention_is_swept_from_its_slot(
    admin, store, engine, running
):
    """One conversation each: unused, unused but pinned, unused but running again, used since."""
    for slot, (at, pinned_until) in enumerate(
        ((1.0, None), (1.0, NOW + 9), (1.0, None), (9.0, None))
    ):
        await store.commit_turn(
            turn(
                f"r{slot}", [user("a")], [], conversation=f"conv-{slot}", slot=slot, at=at,
                pinned_until=pinned_until,
            )
        )  # fmt: skip
    running.counts = {"conv-2": 1}
    await admin.release_unused(before=5.0)
    assert engine.drops == [("cont-0", "unused for the whole retention", None)]
    assert [state.slot for state in await store.slots()] == [1, 2, 3]
    assert (await store.sweep(5.0)).conversations == 1


async def test_status_names_conversations_in_lanes(api, store, engine):
    await store.commit_turn(Chat().turn("a"))
    lanes = (
        LaneInfo(0, RequestId("resp_9"), ContinuationId("cont-1"), 100, 40, 0),
        LaneInfo(1, RequestId("resp_8"), ContinuationId("cont-x"), 5, 5, 2),
    )
    engine.truth = replace(
        engine.truth, lanes=lanes, waiting=3, restoring=2, counters={"steps": 12}
    )
    status = await asked(api.get("/status"))
    assert [lane["conversation"] for lane in status["lanes"]] == ["conv-1", None]
    assert status["waiting"] == 3
    assert status["tiers"] == [
        {"tier": "device", "used_bytes": 256, "total_bytes": 1024, "note": ""}
    ]
    assert status["restoring"] == 2
    assert status["counters"] == {"steps": 12}
    assert status["engine"]["model"] == "scripted"


@pytest.mark.parametrize("path", ["/conversations/conv-9", "/conversations/3", "/responses/resp_9"])
async def test_what_is_not_there(api, path):
    error = await refused(api.get(path), 404)
    assert error["code"] == "not_found"


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer", "Bearer wrong", TOKEN, f"Basic {TOKEN}", "Bearer \xe9"]
)
async def test_only_the_token_opens(api, authorization):
    del api.headers["authorization"]
    headers = {} if authorization is None else {"authorization": authorization.encode("latin-1")}
    for method, path in (("GET", "/slots"), ("POST", "/conversations/0/evict")):
        error = await refused(api.request(method, path, headers=headers), 401)
        assert error["code"] == "invalid_api_key"
