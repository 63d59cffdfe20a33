"""The connection to SQLite: pragmas, short transactions, one writer, typed errors. Knows no table.

Work is handed in as plain functions over a Connection, which run as one transaction each. Writers queue in this process
and take SQLite's write lock at BEGIN, so a transaction never fails half way because another one got in between.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

from sqlalchemy import URL, Connection, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from ninfer_proxy.errors import StoreBusy, StoreFull, StoreUnavailable

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

READ_CONNECTIONS = 4
WAL_BYTES = 64 << 20
RETRY_AFTER_S = 2


def open_engine(database: Path, busy_timeout_s: float, *, foreign_keys: bool = True) -> AsyncEngine:
    """An engine whose transactions begin when we say so: Python's driver would begin them late, and not for DDL."""
    engine = create_async_engine(
        URL.create("sqlite+aiosqlite", database=str(database)),
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

    @event.listens_for(engine.sync_engine, "connect")
    def configure(connection: Any, _record: object) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in pragmas:
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


class Database:
    """Reads run side by side, writes one after the other. A caller's cancellation never cuts a transaction."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._writer = engine.execution_options(writes=True)
        self._turn = asyncio.Lock()
        self._running: set[asyncio.Task[Any]] = set()

    async def read(self, work: Callable[[Connection, *Ts], T], *args: *Ts) -> T:
        """Errors: StoreUnavailable and its kinds."""
        return await self._to_the_end(self._run(self._engine, work, *args))

    async def write(self, work: Callable[[Connection, *Ts], T], *args: *Ts) -> T:
        """Commits when `work` returns, rolls back when it raises. Errors: StoreUnavailable and its kinds."""
        return await self._to_the_end(self._write(work, *args))

    async def close(self) -> None:
        """Waits for what is running, folds the log into the database."""
        while self._running:
            await asyncio.wait(self._running)
        await self.shrink_log()
        await self._engine.dispose()

    async def shrink_log(self) -> None:
        """Empty the write-ahead log as far as readers allow."""
        with typed_errors():
            async with self._turn, self._engine.connect() as connection:
                connection = await connection.execution_options(isolation_level="AUTOCOMMIT")
                await connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")

    async def _write(self, work: Callable[[Connection, *Ts], T], *args: *Ts) -> T:
        async with self._turn:
            return await self._run(self._writer, work, *args)

    @staticmethod
    async def _run(engine: AsyncEngine, work: Callable[[Connection, *Ts], T], *args: *Ts) -> T:
        with typed_errors():
            async with engine.begin() as connection:
                return await connection.run_sync(work, *args)

    async def _to_the_end(self, work: Awaitable[T]) -> T:
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)


@contextmanager
def typed_errors() -> Iterator[None]:
    """SQLite's troubles as errors a client can be told of; mistakes of ours (constraints, SQL) stay what they are."""
    try:
        yield
    except PoolTimeout as error:
        raise StoreBusy(
            "The database is overloaded; try again.", retry_after_s=RETRY_AFTER_S
        ) from error
    except DBAPIError as error:
        known = _translate(error.orig)
        if known is None:
            raise
        raise known from error


def _translate(error: BaseException | None) -> StoreUnavailable | None:
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return None
    match code & 0xFF:  # the low byte is the kind, the rest a detail
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreBusy(
                "Another process holds the database; nothing was stored. Try again.",
                retry_after_s=RETRY_AFTER_S,
            )
        case sqlite3.SQLITE_FULL:
            return StoreFull("The disk that holds the database is full.", retry_after_s=30)
        case sqlite3.SQLITE_READONLY:
            return StoreUnavailable("The database is read-only.")
        case sqlite3.SQLITE_IOERR | sqlite3.SQLITE_CANTOPEN:
            return StoreUnavailable(f"The database can't be reached: {error}.")
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return StoreUnavailable(
                f"The database is damaged ({error}). It is set aside at the next start."
            )
    return None
