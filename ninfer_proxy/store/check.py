"""Whether the store can be used, found out in a moment and for next to nothing: for `/health`. Knows no query of a turn."""

import asyncio
from typing import Any

from sqlalchemy import Connection, text

from ninfer_proxy.errors import StoreBusy, StoreUnavailable
from ninfer_proxy.store.db import Database

PATIENCE_S = 2.0


class StoreCheck:
    """One check at a time; who asks meanwhile is told the same. A check that hangs is left to hang, and no other is begun."""

    def __init__(self, database: Database[Any], patience_s: float = PATIENCE_S) -> None:
        self._database = database
        self._patience_s = patience_s
        self._running: asyncio.Task[StoreUnavailable | None] | None = None

    async def trouble(self) -> StoreUnavailable | None:
        """Why nothing can be stored now: damage met before, a file that has gone, what a read and the write lock say, or how
        the last write ended.
        """
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._look())
        try:
            async with asyncio.timeout(self._patience_s):
                return await asyncio.shield(self._running)
        except TimeoutError:
            return StoreBusy(
                f"The database {self._database.file.path} doesn't answer: "
                f"a glance at it took more than {self._patience_s:g} s. "
                "Look for a process that holds it, or a disk that hangs."
            )

    async def _look(self) -> StoreUnavailable | None:
        database = self._database
        if database.damage is not None:
            return database.damage
        try:
            await database.read(_glance)
            await database.take_write_lock()
        except StoreUnavailable as error:
            return error
        # Whoever held it has let go of it.
        return None if isinstance(database.refusal, StoreBusy) else database.refusal


def _glance(connection: Connection) -> None:
    connection.execute(text("SELECT count(*) FROM sqlite_schema")).one()
