"""The connection to SQLite: pragmas, short transactions, one writer, what it can't do as typed errors. Knows no table.

Work is handed in as plain functions over a Connection, which run as one transaction each, in a thread: one hand-over there and
back, however many statements. Writers queue in this process and take SQLite's write lock at BEGIN, so a transaction never
fails half way because another one got in between.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Generic, TypeVar, TypeVarTuple
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, QueuePool, create_engine, event

from ninfer_proxy.errors import StoreDamaged, StoreUnavailable
from ninfer_proxy.store.datadir import DatabaseFile
from ninfer_proxy.store.troubles import typed_errors

T = TypeVar("T")
V = TypeVar("V")
Ts = TypeVarTuple("Ts")

READ_CONNECTIONS = 4
THREADS = 64
"""More than connections: who finds none free waits for one, and is told after a while that there are too few."""
WAL_BYTES = 64 << 20
REFUSAL_COUNTS_S = 60.0
STOPPING_RETRY_S = 5
SHRINK_WAIT_MS = 500

log = logging.getLogger(__name__)


def open_engine(
    database: Path, busy_timeout_s: float, *, create: bool = False, foreign_keys: bool = True
) -> Engine:
    """An engine whose transactions begin when we say so: Python's driver would begin them late, and not for DDL. Unless
    `create` is set, a file that isn't there is an error.
    """
    engine = create_engine(
        URL.create(
            "sqlite",
            database=f"file:{quote(str(database.absolute()))}",
            query={"mode": "rwc" if create else "rw", "uri": "true"},
        ),
        poolclass=QueuePool,
        # Threads take turns with a connection, which one has for a transaction.
        connect_args={"check_same_thread": False},
        pool_size=READ_CONNECTIONS + 1,
        max_overflow=0,
        pool_timeout=busy_timeout_s,
        pool_reset_on_return=None,  # every use below ends its own transaction
    )
    pragmas = (
        f"busy_timeout = {int(busy_timeout_s * 1000)}",
        "journal_mode = WAL",
        # FULL: an answer that a client saw completed outlives a power cut too. One fsync a turn.
        "synchronous = FULL",
        f"journal_size_limit = {WAL_BYTES}",
        "secure_delete = ON",  # what a client deletes is gone from the file too
        f"foreign_keys = {'ON' if foreign_keys else 'OFF'}",
    )

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _record: object) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in pragmas:
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


class Database(Generic[V]):
    """Reads run side by side, writes one after the other. A caller's cancellation never cuts a transaction.

    `look` reads what is asked for all the time. It is run at the end of each write, in its transaction, and its result kept: that
    holds because the directory's lock makes this process the only one that writes. It is given what it said last and the names
    that were written about since (None: all may be otherwise). `damage` is what was once found to be broken;
    it stays so.
    """

    def __init__(
        self,
        engine: Engine,
        file: DatabaseFile,
        look: Callable[[Connection, V | None, Collection[str] | None], V],
    ) -> None:
        self.file = file
        self._look = look
        self._view: V | None = None
        self.damage: StoreDamaged | None = None
        self._refused: tuple[float, StoreUnavailable] | None = None
        self._engine = engine
        self._writer = engine.execution_options(writes=True)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="store")
        self._turn = asyncio.Lock()
        self._running: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def read(self, work: Callable[[Connection, *Ts], T], *args: *Ts) -> T:
        """Errors: StoreUnavailable and its kinds."""
        self._check_open()
        return await self._to_the_end(self._run(self._engine, work, *args))

    async def write(
        self,
        work: Callable[[Connection, *Ts], T],
        *args: *Ts,
        about: Collection[str] | None = None,
        done: Callable[[T], None] | None = None,
    ) -> T:
        """Commits when `work` returns, rolls back when it raises. `about` are the names it writes about, as `look` knows them
        (None: any). `done` is told what it returned when that is on disk, before anything else is written.

        Errors: StoreUnavailable and its kinds.
        """
        self._check_open()
        return await self._to_the_end(self._write(work, *args, about=about, done=done))

    async def view(self) -> V:
        """What `look` gives; true at the moment this returns: what is decided before the next await is decided on nothing old.

        Errors: StoreUnavailable and its kinds.
        """
        self._check_open()
        while self._view is None:
            await self._to_the_end(self._look_again())
        self.file.check()
        return self._view

    @property
    def refusal(self) -> StoreUnavailable | None:
        """Why the last write was refused; forgotten after a while, or nobody would send another to find out."""
        if self._refused is None or time.monotonic() - self._refused[0] > REFUSAL_COUNTS_S:
            return None
        return self._refused[1]

    async def take_write_lock(self) -> None:
        """Take SQLite's write lock and give it back: what a write would meet at its begin. Errors: as `write`."""
        self._check_open()
        await self._to_the_end(self._begin_and_end())

    async def close(self) -> None:
        """Takes nothing more, waits for what is running, folds the log into the database."""
        if self._closed:
            return
        self._closed = True
        while self._running:
            await asyncio.wait(self._running)
        try:
            await self.shrink_log()
        except StoreUnavailable as error:
            log.warning("the database's log stays as it is: %s", error.message)
        self._engine.dispose()
        self._threads.shutdown(wait=False)

    async def shrink_log(self) -> None:
        """Empty the write-ahead log as far as readers allow. Errors: StoreUnavailable and its kinds."""
        self.file.check()
        with typed_errors(self.file.path):
            async with self._turn:
                await self._in_thread(_shrink_log, self._engine)

    async def _write(
        self,
        work: Callable[[Connection, *Ts], T],
        *args: *Ts,
        about: Collection[str] | None,
        done: Callable[[T], None] | None,
    ) -> T:
        async with self._turn:
            known, view = self._view, None
            try:
                result, view = await self._run(
                    self._writer, self._and_look, work, args, known, about
                )
            except StoreUnavailable as error:
                self._refused = time.monotonic(), error
                raise
            finally:
                self._view = view
            self._refused = None
            if done is not None:
                done(result)
            return result

    def _and_look(
        self,
        connection: Connection,
        work: Callable[[Connection, *Ts], T],
        args: tuple[*Ts],
        known: V | None,
        about: Collection[str] | None,
    ) -> tuple[T, V]:
        return work(connection, *args), self._look(connection, known, about)

    async def _look_again(self) -> None:
        """After the start, and after a write that failed: nobody knows what came of it."""
        async with self._turn:
            if self._view is None:
                self._view = await self._run(self._engine, self._look, None, None)

    async def _begin_and_end(self) -> None:
        async with self._turn:
            await self._run(self._writer, lambda _: None)

    async def _run(self, engine: Engine, work: Callable[[Connection, *Ts], T], *args: *Ts) -> T:
        self.file.check()
        try:
            with typed_errors(self.file.path):
                return await self._in_thread(transaction, engine, work, *args)
        except StoreDamaged as error:
            self.damage = error
            raise

    async def _in_thread(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *args)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("The service is stopping.", retry_after_s=STOPPING_RETRY_S)

    async def _to_the_end(self, work: Awaitable[T]) -> T:
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)


def transaction(engine: Engine, work: Callable[[Connection, *Ts], T], *args: *Ts) -> T:
    """`work` as one transaction, which is rolled back when it raises. Blocks."""
    with engine.begin() as connection:
        return work(connection, *args)


def _shrink_log(engine: Engine) -> None:
    """Nobody waits long for housekeeping: not the writers behind it, nor a service that stops."""
    with engine.connect() as connection:
        connection = connection.execution_options(isolation_level="AUTOCOMMIT")
        usual: int = connection.exec_driver_sql("PRAGMA busy_timeout").scalar_one()
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {SHRINK_WAIT_MS}")
        try:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            connection.exec_driver_sql(f"PRAGMA busy_timeout = {usual}")
