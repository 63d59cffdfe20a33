"""Long conversations stay small and cheap; what is old goes away in small steps, and never the tip of a line in use."""

import sqlite3

import pytest
import pytest_asyncio
from sqlalchemy import text
from storing import Chat, Clock, assistant, checkpoint, files_bytes, turn, user

from ninfer_proxy.store import DropRecord, Store, Swept, items
from ninfer_proxy.store import store as store_module
from ninfer_proxy.store.datadir import DATABASE_NAME
from ninfer_proxy.types import ConversationId, ResponseId, TenantKey

DAY = 86_400.0
NOW = 1_000_000_000.0
HEAVY_HEAD = {
    "instructions": "system prompt " * 3000,
    "tools": [
        {"type": "function", "name": f"tool_{n}", "description": "d" * 800} for n in range(12)
    ],
}


@pytest_asyncio.fixture
async def store(tmp_path):
    opened = await Store.open(tmp_path / "data", clock=Clock(NOW))
    yield opened
    await opened.close()


async def rows_written(store):
    """Rows inserted, updated or deleted so far: one connection does all the work of sequential calls."""
    return await store._database.read(
        lambda connection: connection.execute(text("SELECT total_changes()")).scalar_one()
    )


async def count(store, table):
    return await store._database.read(
        lambda connection: connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()
    )


def heavy(name):
    """A final body as agents cause it: 50 KB of instructions and tools repeated with each response."""
    return {"id": name, "output": [], **HEAVY_HEAD}


async def test_a_turn_writes_its_new_items_and_four_rows(store):
    chat = Chat()
    for n in range(30):
        await store.commit_turn(chat.turn(f"turn {n}", body=heavy(f"resp_{n + 1}")))
    before = await rows_written(store)
    await store.commit_turn(chat.turn("one more", body=heavy("resp_31")))
    # one user item, one answer; conversation, line, response
    assert await rows_written(store) - before <= 2 + 4


async def test_turns_that_resend_the_whole_history_stay_small(store, tmp_path):
    chat = Chat()
    for n in range(120):
        await store.commit_turn(chat.turn(f"turn {n}", body=heavy(f"resp_{n + 1}")))
    assert await count(store, "items") == 240
    assert await count(store, "fragments") == 2
    await store.close()
    # about 1.2 KB an item for words and bookkeeping; copies of histories would be some 5 MB, of heads 6 MB
    assert files_bytes(tmp_path) < 700_000


async def test_a_thousand_turns_cost_no_more_statements_than_one(store, tmp_path):
    chat = Chat()
    for n in range(20):
        for m in range(49):
            chat.exchange(f"turn {n} {m}")
        record = chat.turn(f"turn {n}")
        await store.commit_turn(record)
    before = await rows_written(store)
    await store.commit_turn(chat.turn("last"))
    assert await rows_written(store) - before <= 2 + 4
    history = await store.history(record.conversation.tenant, ResponseId("resp_1001"))
    assert [item.raw for item in history.items] == chat.history
    (line,) = await store.find_lines(record.conversation.tenant, "", record.chain[0])
    assert len(line.chain) == 2002
    await store.close()
    with sqlite3.connect(tmp_path / "data" / DATABASE_NAME) as raw:
        (lists,) = raw.execute(
            "SELECT max(length(prompt) + length(output)) FROM responses"
        ).fetchone()
    raw.close()
    assert lists <= 100


async def test_lookups_use_indexes(store):
    """Each question of a turn is answered from an index, whatever the size of the tables."""
    await store.commit_turn(Chat().turn("a"))
    questions = {
        "SELECT key FROM conversations WHERE tenant=? AND scope=? ORDER BY role, last_used_at DESC": "conversations_scope",
        "SELECT key FROM conversations WHERE tenant=? AND opening=? ORDER BY last_used_at DESC": "conversations_opening",
        "SELECT key FROM conversations WHERE slot IS NOT NULL ORDER BY slot": "conversations_slot",
        "SELECT payload FROM items WHERE item_id=?": "items_id",
        "SELECT payload FROM items WHERE produced AND call_key=?": "items_call",
        "SELECT key FROM responses WHERE conversation=? AND output_digest IN (?)": "responses_output",
        "SELECT key FROM responses WHERE conversation=? ORDER BY completed_at DESC": "responses_conversation",
    }

    def plan(connection, question):
        asked = text("EXPLAIN QUERY PLAN " + question.replace("?", "1"))
        return " ".join(str(row.detail) for row in connection.execute(asked))

    for question, index in questions.items():
        said = await store._database.read(plan, question)
        assert index in said, (question, said)
        assert "TEMP B-TREE" not in said, (question, said)


@pytest.mark.parametrize("question", [items._MINTED, items._OF_IDS])
async def test_ids_are_looked_up_without_reading_all_conversations(store, question):
    def plan(connection):
        asked = {"tenant": "t", "ids": "[]", "call_keys": "[]"}
        rows = connection.execute(text(f"EXPLAIN QUERY PLAN {question}"), asked)
        return [
            row.detail for row in rows if " items " in row.detail or "conversations" in row.detail
        ]

    for step in await store._database.read(plan):
        looked_up = ("item_id=?", "call_key=?", "INTEGER PRIMARY KEY")
        assert any(each in step for each in looked_up), step


async def test_a_sweep_takes_old_responses_but_not_the_tip(store, monkeypatch):
    monkeypatch.setattr(store_module, "SWEEP_BATCH", 20)
    chat = Chat()
    for n in range(50):
        await store.commit_turn(chat.turn(f"t{n % 3}", at=NOW - 50 * DAY + n))
    await store.commit_turn(chat.turn("now", at=NOW))
    await store.commit_turn(
        turn("resp_idle", [user("x")], [], conversation="conv-2", slot=None, at=1.0)
    )
    swept = await store.sweep(NOW - 30 * DAY)
    assert swept == Swept(conversations=1, responses=50, items=0, drops=0)
    assert await count(store, "responses") == 1
    kept = await store.history(TenantKey("tenant-a"), ResponseId("resp_51"))
    assert [item.raw for item in kept.items] == chat.history
    assert await store.sweep(NOW - 30 * DAY) == Swept()


async def test_a_line_in_a_slot_or_under_a_lease_is_never_swept(store):
    await store.commit_turn(turn("resp_1", [user("a")], [], at=1.0, slot=0))
    await store.commit_turn(
        turn(
            "resp_2",
            [user("a")],
            [],
            conversation="conv-2",
            at=1.0,
            slot=None,
            pinned_until=NOW + 1,
        )
    )
    await store.commit_turn(
        turn(
            "resp_3",
            [user("a")],
            [],
            conversation="conv-3",
            at=1.0,
            slot=None,
            pinned_until=NOW - 1,
        )
    )
    assert (await store.sweep(NOW)).conversations == 1
    assert await store.conversation(ConversationId("conv-3")) is None
    assert await store.explain(ResponseId("resp_1")) is not None


async def test_a_sweep_takes_items_and_fragments_nobody_refers_to(store):
    edited = turn(
        "resp_1",
        [user("a"), user("b")],
        [assistant("c", "m1")],
        at=NOW - 40 * DAY,
        body=heavy("resp_1"),
    )
    await store.commit_turn(edited)
    lost = DropRecord(NOW - 40 * DAY, "memory", (checkpoint(1),))
    await store.record_drops([lost])
    await store.commit_turn(turn("resp_2", [user("a")], [assistant("d", "m2")], at=NOW))
    assert await store.sweep(NOW - 30 * DAY) == Swept(responses=1, items=2, drops=1)
    assert await count(store, "items") == 2
    assert await count(store, "fragments") == 0
