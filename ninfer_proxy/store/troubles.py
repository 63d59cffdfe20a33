"""What SQLite can't do, as errors a client can be told of: what is wrong, with which file, what to do. Knows no query."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from ninfer_proxy.errors import StoreBusy, StoreDamaged, StoreFull, StoreUnavailable

BUSY_RETRY_S = 2
REPAIR_RETRY_S = 30
"""Somebody has to do something first."""


@contextmanager
def typed_errors(database: Path) -> Iterator[None]:
    """Errors: StoreUnavailable and its kinds. Mistakes of ours (constraints, SQL) stay what they are."""
    try:
        yield
    except PoolTimeout as error:
        raise StoreBusy(
            f"The database {database} is overloaded. Try again.", retry_after_s=BUSY_RETRY_S
        ) from error
    except DBAPIError as error:
        known = translated(error.orig, database)
        if known is None:
            raise
        raise known from error


def translated(error: BaseException | None, database: Path) -> StoreUnavailable | None:
    """None for what isn't the database's trouble but a mistake in what was asked of it."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return None
    match code & 0xFF:  # the low byte is the kind, the rest a detail
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED | sqlite3.SQLITE_PROTOCOL:
            return StoreBusy(
                f"Another process holds the database {database}; nothing was stored. Try again.",
                retry_after_s=BUSY_RETRY_S,
            )
        case sqlite3.SQLITE_FULL:
            return StoreFull(
                f"The disk that holds the database {database} is full; nothing was stored. "
                "Free some space on it, then try again.",
                retry_after_s=REPAIR_RETRY_S,
            )
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return StoreUnavailable(
                f"The database {database} can't be written to: it is read-only; nothing was stored. "
                "Make it and its directory writable for the service, then try again.",
                retry_after_s=REPAIR_RETRY_S,
            )
        case sqlite3.SQLITE_IOERR | sqlite3.SQLITE_CANTOPEN:
            return StoreUnavailable(
                f"The database {database} can't be reached ({error}). "
                "See that its directory and disk are there and in order, then try again.",
                retry_after_s=REPAIR_RETRY_S,
            )
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return StoreDamaged(
                f"The database {database} is damaged ({error}). "
                "Restart the service: it sets the file aside and goes on with an empty one.",
                retry_after_s=REPAIR_RETRY_S,
            )
    return None
