"""The proxy's database from outside: counts, integrity, a lock held, and fixtures of many rows. Knows SQLite and the store's tables."""

import shutil
import sqlite3
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine

from ninfer_proxy.app import TENANT_SECRET_FILE
from ninfer_proxy.http.intake import tenant_name
from ninfer_proxy.store.datadir import DATABASE_NAME, kept_secret
from ninfer_proxy.store.migrate import SCRIPTS
from ninfer_proxy.store.store import Store
from ninfer_proxy.types import ResponseId, TenantKey
from tests.proxy.storing import Chat, turn, user

FIXTURE = "resp_fixture_"
CHAIN = "resp_chain_"
OLDEST = "0001"
COMPANIONS = ("", "-wal", "-shm")
COPIED = ("conversations", "lines", "items", "responses")


class Records:
    """The database in a data directory. Reads beside a running server; a dead one's is looked at as a copy, since looking mends."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    @property
    def file(self) -> Path:
        return self._data_dir / DATABASE_NAME

    def integrity(self) -> str:
        """SQLite's own word: "ok", or what is wrong."""
        try:
            with closing(sqlite3.connect(f"file:{self.file}?mode=ro", uri=True)) as database:
                return str(database.execute("PRAGMA integrity_check").fetchone()[0])
        except sqlite3.DatabaseError as error:
            return str(error)

    def integrity_of_the_dead(self) -> str:
        """The same of a copy."""
        with tempfile.TemporaryDirectory() as folder:
            for companion in COMPANIONS:
                source = self.file.with_name(DATABASE_NAME + companion)
                if source.exists():
                    shutil.copy(source, folder)
            return Records(Path(folder)).integrity()

    def row_counts(self) -> dict[str, int]:
        with closing(sqlite3.connect(f"file:{self.file}?mode=ro", uri=True)) as database:
            names = database.execute(
                "SELECT name FROM sqlite_master WHERE type='table' AND name NOT LIKE 'sqlite_%'"
            ).fetchall()
            return {
                name: database.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
                for (name,) in names
            }

    def fixture_rows(self) -> int:
        with closing(sqlite3.connect(f"file:{self.file}?mode=ro", uri=True)) as database:
            found = database.execute(
                "SELECT count(*) FROM responses WHERE id GLOB ?", (f"{FIXTURE}*",)
            )
            return int(found.fetchone()[0])

    def hold_write_lock(self, seconds: float) -> None:
        """As another process would; blocks this thread."""
        with closing(sqlite3.connect(self.file, timeout=10, isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")
            time.sleep(seconds)
            database.execute("ROLLBACK")

    async def install_fixture(self, schema: str, rows: int, chain_depth: int, key: str) -> None:
        """A database with `rows` responses of the client with API key `key`, `resp_fixture_1` and on, and one conversation of
        `chain_depth` turns, `resp_chain_1` and on. `schema` is "current" or "oldest_supported".
        """
        self._data_dir.mkdir(parents=True)
        tenant = tenant_name(key, kept_secret(self._data_dir, TENANT_SECRET_FILE).encode())
        with tempfile.TemporaryDirectory() as folder:
            await _make_template(Path(folder), tenant, chain_depth)
            template = Path(folder) / DATABASE_NAME
            if schema == "current":
                shutil.copy(template, self.file)
            else:
                _make_old(self.file, template)
        with closing(sqlite3.connect(self.file)) as database, database:
            _multiply(database, rows)


async def _make_template(folder: Path, tenant: TenantKey, chain_depth: int) -> None:
    """One fixture row and the chain, as the store writes them."""
    store = await Store.open(folder, clock=time.time)
    now = time.time()
    try:
        one = turn(
            f"{FIXTURE}1", [user("Hello.")], [], conversation="fixture-0",
            tenant=tenant, at=now, slot=None,
        )  # fmt: skip
        await store.commit_turn(one)
        chat = Chat("chain-1")
        for number in range(1, chain_depth + 1):
            record = chat.turn(f"turn {number}", tenant=tenant, at=now, slot=None)
            named = replace(record, response=ResponseId(f"{CHAIN}{number}"))
            await store.commit_turn(named)
    finally:
        await store.close()


def _make_old(file: Path, template: Path) -> None:
    """A database of the oldest schema with the template's rows."""
    engine = create_engine(f"sqlite:///{file}")
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(SCRIPTS))
        config.attributes["connection"] = connection
        command.upgrade(config, OLDEST)
    engine.dispose()
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("ATTACH ? AS template", (str(template),))
        for table in COPIED:
            columns = ", ".join(_columns(database, table))
            database.execute(
                f"INSERT INTO {table} ({columns}) SELECT {columns} FROM template.{table}"
            )


def _multiply(database: sqlite3.Connection, rows: int) -> None:
    """Copies of the conversation of `resp_fixture_1`, until there are `rows`; each with its own ids."""
    (source,) = database.execute(
        "SELECT conversation FROM responses WHERE id = ?", (f"{FIXTURE}1",)
    ).fetchone()
    (highest,) = database.execute("SELECT max(key) FROM conversations").fetchone()
    (last,) = database.execute("SELECT max(key) FROM responses").fetchone()
    changed = {
        "conversations": {
            "key": f"{highest} + n",
            "id": "'fixture-' || n",
            "continuation": "'cont-fixture-' || n",
            "tip_response": f"'{FIXTURE}' || n",
        },
        "lines": {"conversation": f"{highest} + n"},
        "items": {"conversation": f"{highest} + n", "item_id": "item_id || '_' || n"},
        "responses": {
            "key": f"{last} + n",
            "id": f"'{FIXTURE}' || n",
            "conversation": f"{highest} + n",
        },
    }
    for table, values in changed.items():
        columns = _columns(database, table)
        owner = "key" if table == "conversations" else "conversation"
        database.execute(
            f"WITH RECURSIVE numbers(n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM numbers WHERE n < {rows}) "
            f"INSERT INTO {table} ({', '.join(columns)}) "
            f"SELECT {', '.join(values.get(column, column) for column in columns)} "
            f"FROM {table}, numbers WHERE {table}.{owner} = {source}"
        )


def _columns(database: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
