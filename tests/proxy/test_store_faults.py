"""Kills, locks, full disks, damage, strangers' files: nothing acknowledged is lost, nothing is overwritten, errors say what."""

import asyncio
import contextlib
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from storing import TENANT, Chat, Clock, turn, user

from ninfer_proxy.errors import StartRefused, StoreBusy, StoreFull, StoreUnavailable
from ninfer_proxy.store import Store
from ninfer_proxy.store.datadir import DATABASE_NAME, kept_secret
from ninfer_proxy.store.migrate import SCRIPTS, upgrade
from ninfer_proxy.store.tables import metadata
from ninfer_proxy.types import ResponseId

HERE = Path(__file__).parent
WRITER = """
import asyncio, sys
from pathlib import Path
from storing import Chat, Clock
from ninfer_proxy.store import Store

async def main(data_dir, first):
    store = await Store.open(data_dir, clock=Clock())
    chat = Chat(conversation=f"conv-{first}", exchanges=int(first))
    while True:
        record = chat.turn("words " * 200)
        await store.commit_turn(record)
        print(record.response, flush=True)

asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
"""


def python(code, *arguments):
    return subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path.insert(0, {str(HERE)!r})\n{code}",
            *arguments,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=HERE.parents[1],
    )


def query(path, statement):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(statement).fetchall()
        connection.commit()
        return rows


async def opened(folder, **options):
    return await Store.open(folder, clock=Clock(), **options)


@pytest.mark.parametrize(("lines", "delay"), [(1, 0.0), (7, 0.011), (20, 0.004)])
async def test_kill_9_in_a_commit_loses_nothing_acknowledged(tmp_path, lines, delay):
    acknowledged = []
    for first in (0, 1000):
        writer = python(WRITER, str(tmp_path), str(first))
        acknowledged += [writer.stdout.readline().strip() for _ in range(lines)]
        time.sleep(delay)
        writer.send_signal(signal.SIGKILL)
        rest, _ = writer.communicate()
        acknowledged += rest.split("\n")[:-1]
    assert query(tmp_path / DATABASE_NAME, "PRAGMA integrity_check") == [("ok",)]
    store = await opened(tmp_path)
    assert store.set_aside is None
    for response in acknowledged:
        assert await store.history(TENANT, ResponseId(response)) is not None
    await store.close()


async def test_a_second_process_is_refused(tmp_path):
    store = await opened(tmp_path)
    with pytest.raises(StartRefused, match=r"in use by process \d+.*--data-dir"):
        await opened(tmp_path)
    await store.close()
    await (await opened(tmp_path)).close()


@pytest.mark.parametrize("harm", ["garbage", "truncated", "stump", "page", "directory"])
async def test_a_damaged_database_is_set_aside(tmp_path, harm, caplog):
    store = await opened(tmp_path)
    chat = Chat()
    for n in range(30):
        await store.commit_turn(chat.turn(f"{n} " * 300))
    await store.close()
    path = tmp_path / DATABASE_NAME
    whole = path.read_bytes()
    damaged = {
        "garbage": b"not a database at all" * 100,
        "truncated": whole[: len(whole) // 2],
        "stump": whole[:50],
        "page": whole[:8192] + b"\xa5" * 4096 + whole[12288:],
        "directory": None,
    }[harm]
    if damaged is None:
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes(damaged)
    again = await opened(tmp_path)
    assert again.set_aside is not None
    assert str(again.set_aside) in caplog.text
    if damaged is not None:
        assert again.set_aside.read_bytes() == damaged
    await again.commit_turn(Chat().turn("fresh"))
    await again.close()
    assert query(path, "SELECT count(*) FROM responses") == [(1,)]


async def test_nothing_set_aside_is_overwritten(tmp_path):
    kept = []
    for n in range(3):
        (tmp_path / DATABASE_NAME).write_bytes(b"garbage %d" % n * 200)
        store = await opened(tmp_path)
        kept.append(store.set_aside)
        await store.close()
    assert len(set(kept)) == 3
    assert [path.read_bytes()[:9] for path in kept] == [b"garbage 0", b"garbage 1", b"garbage 2"]


async def test_an_unusable_directory_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StartRefused, match="--data-dir"):
        await opened(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_secret_is_made_once_and_for_its_owner(tmp_path):
    secret = kept_secret(tmp_path, "admin-token")
    assert len(secret) >= 32
    assert kept_secret(tmp_path, "admin-token") == secret != kept_secret(tmp_path, "other")
    assert (tmp_path / "admin-token").stat().st_mode & 0o777 == 0o600
    (tmp_path / "admin-token").write_text("\n")
    with pytest.raises(StartRefused, match="is empty"):
        kept_secret(tmp_path, "admin-token")


async def test_another_programs_database_is_refused_and_left_alone(tmp_path):
    path = tmp_path / DATABASE_NAME
    query(path, "CREATE TABLE theirs (x)")
    before = path.read_bytes()[100:]
    with pytest.raises(StartRefused, match=f"{DATABASE_NAME} is a database of another program"):
        await opened(tmp_path)
    assert path.read_bytes()[100:] == before


async def test_a_newer_schema_is_refused_and_left_alone(tmp_path):
    await (await opened(tmp_path)).close()
    path = tmp_path / DATABASE_NAME
    query(path, "UPDATE alembic_version SET version_num = '9000'")
    with pytest.raises(StartRefused, match="newer ninfer-proxy"):
        await opened(tmp_path)
    query(path, "UPDATE alembic_version SET version_num = '0002'")
    await (await opened(tmp_path)).close()


async def test_opening_twice_migrates_once(tmp_path):
    store = await opened(tmp_path)
    assert store.revisions == (None, "0002")
    await store.close()
    store = await opened(tmp_path)
    assert store.revisions == ("0002", "0002")
    await store.close()


async def test_responses_from_before_weights_were_recorded_have_none(tmp_path):
    store = await opened(tmp_path)
    await store.commit_turn(Chat().turn("a", weights_id="w"))
    assert (await store.explain(ResponseId("resp_1"))).weights_id == "w"
    await store.close()
    path = tmp_path / DATABASE_NAME
    query(path, "ALTER TABLE responses DROP COLUMN weights_id")
    query(path, "UPDATE alembic_version SET version_num = '0001'")
    store = await opened(tmp_path)
    assert store.revisions == ("0001", "0002")
    assert (await store.explain(ResponseId("resp_1"))).weights_id is None
    await store.close()


async def test_an_interrupted_migration_starts_over(tmp_path):
    store = await opened(tmp_path)
    chat = Chat()
    for n in range(40):
        await store.commit_turn(chat.turn(str(n)))
    await store.close()
    path = tmp_path / DATABASE_NAME
    scripts = scripts_with_a_slow_step(tmp_path / "scripts")
    migration = python(MIGRATE, str(path), str(scripts))
    assert migration.stdout.readline() == "half way\n"
    migration.kill()
    migration.communicate()
    (scripts / "linger").unlink()
    assert query(path, "PRAGMA integrity_check") == [("ok",)]
    assert query(path, "SELECT version_num FROM alembic_version") == [("0002",)]
    for _ in range(2):
        migration = python(MIGRATE, str(path), str(scripts))
        said, problems = migration.communicate(input=None)
        assert migration.returncode == 0, problems
    assert said.split("\n")[-2] == "0003 0003"
    assert query(path, "SELECT count(*), min(mood) FROM responses") == [(40, "calm")]
    assert query(path, "PRAGMA foreign_key_check") == []


MIGRATE = """
import sys
from pathlib import Path
from ninfer_proxy.store.db import open_engine, transaction
from ninfer_proxy.store.migrate import upgrade

path, scripts = map(Path, sys.argv[1:])
engine = open_engine(path, 5.0, foreign_keys=False).execution_options(writes=True)
print(*transaction(engine, upgrade, scripts), flush=True)
"""
SLOW_STEP = '''
"""Rebuilds a table, says so, and doesn't come to the end while it is told to linger."""
import time
from pathlib import Path
import sqlalchemy as sa
from alembic import op
revision, down_revision = "0003", "0002"

def upgrade():
    with op.batch_alter_table("responses", recreate="always") as batch:
        batch.add_column(sa.Column("mood", sa.Text, nullable=False, server_default="calm"))
    print("half way", flush=True)
    if (Path(__file__).parents[1] / "linger").exists():
        time.sleep(600)
'''


def scripts_with_a_slow_step(folder):
    shutil.copytree(SCRIPTS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "versions" / "0002_slow.py").write_text(SLOW_STEP)
    (folder / "linger").touch()
    return folder


def shape(connection):
    """Columns, references and indexes, as SQLite understood them."""
    tables = connection.execute(
        text("SELECT name FROM sqlite_master WHERE type = 'table' AND name != 'alembic_version'")
    )
    described = {
        name: [
            connection.execute(text(f"PRAGMA {pragma}({name})")).fetchall()
            for pragma in ("table_xinfo", "foreign_key_list")
        ]
        for name in tables.scalars().all()
    }
    indexes = connection.execute(text("SELECT name, sql FROM sqlite_master WHERE type = 'index'"))
    return described, dict(indexes.all())


def test_migrations_make_the_tables_that_the_code_expects():
    migrated, expected = create_engine("sqlite://"), create_engine("sqlite://")
    with migrated.begin() as left, expected.begin() as right:
        upgrade(left)
        metadata.create_all(right)
        made, wanted = shape(left), shape(right)
    made[1].pop("sqlite_autoindex_alembic_version_1")
    assert made == wanted
    migrated.dispose()
    expected.dispose()


@contextlib.contextmanager
def write_lock_held(path):
    """By a connection of its own, as another process would hold it."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


async def test_a_held_write_lock_is_waited_for(tmp_path):
    store = await opened(tmp_path)
    with write_lock_held(tmp_path / DATABASE_NAME):
        commit = asyncio.create_task(store.commit_turn(Chat().turn("late but kept")))
        await asyncio.sleep(0.3)
        assert not commit.done()
    await commit
    assert await store.history(TENANT, ResponseId("resp_1")) is not None
    await store.close()


async def test_a_write_lock_held_too_long_is_a_clear_error(tmp_path):
    store = await opened(tmp_path, busy_timeout_s=0.1)
    record = Chat().turn("try again")
    with write_lock_held(tmp_path / DATABASE_NAME):
        with pytest.raises(StoreBusy) as caught:
            await store.commit_turn(record)
        assert (caught.value.status, caught.value.retry_after_s) == (503, 2)
        assert await store.find_lines(TENANT, "", record.chain[0]) == ()
    await store.commit_turn(record)
    assert await store.history(TENANT, ResponseId("resp_1")) is not None
    await store.close()


def on_the_connection(store, statement):
    """Sequential calls share one connection, so a pragma set here holds for what follows."""

    def run(connection):
        answer = connection.execute(text(statement))
        return answer.fetchall() if answer.returns_rows else []

    return store._database.read(run)


async def test_a_full_disk_is_a_clear_error_and_changes_nothing(tmp_path):
    store = await opened(tmp_path)
    chat = Chat()
    await store.commit_turn(chat.turn("first"))
    ((pages,),) = await on_the_connection(store, "PRAGMA page_count")
    await on_the_connection(store, f"PRAGMA max_page_count = {pages + 1}")
    large = chat.turn("x" * 100_000)
    with pytest.raises(StoreFull):
        await store.commit_turn(large)
    assert await store.history(TENANT, ResponseId("resp_1")) is not None
    assert await store.explain(ResponseId("resp_2")) is None
    await on_the_connection(store, "PRAGMA max_page_count = 100000")
    await store.commit_turn(large)
    await store.close()


async def test_a_readonly_database_is_a_clear_error(tmp_path):
    store = await opened(tmp_path)
    await on_the_connection(store, "PRAGMA query_only = ON")
    with pytest.raises(StoreUnavailable, match="read-only"):
        await store.commit_turn(Chat().turn("no"))
    await on_the_connection(store, "PRAGMA query_only = OFF")
    await store.close()


async def test_a_cancelled_caller_does_not_cut_a_commit(tmp_path):
    store = await opened(tmp_path)
    commit = asyncio.create_task(store.commit_turn(Chat().turn("x " * 1000)))
    await asyncio.sleep(0)
    commit.cancel()
    with pytest.raises(asyncio.CancelledError):
        await commit
    await store.close()
    again = await opened(tmp_path)
    assert await again.history(TENANT, ResponseId("resp_1")) is not None
    await again.close()


async def test_many_turns_at_once(tmp_path):
    store = await opened(tmp_path)
    records = [
        turn(f"resp_{n}", [user(f"u{n}")], [], conversation=f"conv-{n % 5}", slot=None)
        for n in range(40)
    ]
    await asyncio.gather(
        *(store.commit_turn(record) for record in records),
        *(store.find_lines(TENANT, "", record.chain[0]) for record in records),
        *(store.history(TENANT, record.response) for record in records),
    )
    for record in records:
        assert await store.history(TENANT, record.response) is not None
    await store.close()
    assert query(tmp_path / DATABASE_NAME, "PRAGMA integrity_check") == [("ok",)]
