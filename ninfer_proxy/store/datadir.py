"""The data directory: one process at a time, a damaged database is set aside, a vanished one noticed. Knows files; reads no record."""

import fcntl
import logging
import os
import secrets
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ninfer_proxy.errors import StartRefused, StoreUnavailable

log = logging.getLogger(__name__)

DATABASE_NAME = "ninfer-proxy.sqlite3"
LOCK_NAME = "lock"
COMPANIONS = ("", "-wal", "-shm")
HEADER_BYTES = 100
CHECK_SECONDS = 3.0
CHECK_INSTRUCTIONS = 100_000
GONE_RETRY_S = 30


def claim(data_dir: Path) -> IO[str]:
    """Make the directory if needed and lock it for this process; closing the file gives it back.

    The lock goes away with the process, however that ends. Errors: StartRefused when another process has it or the
    directory can't be used.
    """
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = open(data_dir / LOCK_NAME, "a+", encoding="ascii")  # noqa: SIM115  held until close
    except OSError as error:
        raise StartRefused(
            f"The data directory {data_dir} can't be used: {error.strerror}. Choose another with --data-dir."
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.seek(0)
        owner = lock.read().strip() or "unknown"
        lock.close()
        raise StartRefused(
            f"The data directory {data_dir} is in use by process {owner}. "
            "Stop that server first, or give this one another --data-dir."
        ) from error
    lock.seek(0)
    lock.truncate()
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


def kept_secret(data_dir: Path, name: str) -> str:
    """The secret in the file `name`, made at the first call; only its owner can read it.

    For the directory's owner: call it after `claim`. Errors: StartRefused when the file can't be read or made.
    """
    path = data_dir / name
    try:
        if not path.exists():
            with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
                file.write(secrets.token_urlsafe(32) + "\n")
        secret = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StartRefused(f"The secret {path} can't be used: {error}.") from error
    if not secret:
        raise StartRefused(f"The secret {path} is empty. Delete the file to get a new one.")
    return secret


@dataclass(frozen=True, slots=True)
class DatabaseFile:
    """The file that was opened, told apart from any other that may come to bear its name."""

    path: Path
    identity: tuple[int, int]

    @classmethod
    def at(cls, path: Path) -> "DatabaseFile":
        return cls(path, _identity(path))

    def check(self) -> None:
        """SQLite goes on with a file that was deleted, and all that it then writes is lost: that must be an error.

        Errors: StoreUnavailable when the file isn't where it was.
        """
        try:
            found = _identity(self.path)
        except FileNotFoundError:
            raise StoreUnavailable(
                f"The database {self.path} is gone: it was deleted or moved while the service ran. "
                "Put it back, or restart the service, which then starts with an empty one.",
                retry_after_s=GONE_RETRY_S,
            ) from None
        except OSError as error:
            raise StoreUnavailable(
                f"The database {self.path} can't be reached ({error.strerror}). "
                "See that its directory and disk are there, then try again.",
                retry_after_s=GONE_RETRY_S,
            ) from error
        if found != self.identity:
            raise StoreUnavailable(
                f"Another file has taken the place of the database {self.path}. "
                "Put the old one back, or restart the service to go on with the new one.",
                retry_after_s=GONE_RETRY_S,
            )


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def set_aside_if_damaged(database: Path, clock: Callable[[], float]) -> Path | None:
    """Rename a database that can't be used, its log files too, and say where it went. None when it is sound or absent."""
    reason = damage(database)
    if reason is None:
        return None
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(clock()))
    target = _unused(database.with_name(f"{database.name}.damaged-{stamp}"))
    for suffix in COMPANIONS:
        part = database.with_name(database.name + suffix)
        if part.exists():
            part.rename(target.with_name(target.name + suffix))
    log.error("The database is damaged (%s). It was moved to %s; starting empty.", reason, target)
    return target


def _unused(path: Path) -> Path:
    """A name that nothing has, so that nothing is overwritten."""
    candidate, number = path, 1
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate


def damage(database: Path) -> str | None:
    """What is wrong with the file, or None. Looks for at most CHECK_SECONDS: a huge database mustn't hold up the start."""
    if database.is_dir():
        return "it is a directory"
    if not database.exists() or database.stat().st_size == 0:
        return None
    if database.stat().st_size < HEADER_BYTES:
        # SQLite would take it for an empty database and write over it.
        return "it is too short for a database"
    deadline = time.monotonic() + CHECK_SECONDS
    connection = sqlite3.connect(database)
    try:
        connection.set_progress_handler(lambda: time.monotonic() > deadline, CHECK_INSTRUCTIONS)
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        return None if verdict == "ok" else str(verdict)
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return str(error)
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            return None
        raise StartRefused(f"The database {database} can't be read: {error}.") from error
    finally:
        connection.close()
