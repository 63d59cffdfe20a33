"""Files of the disk tier: where they lie, how they're laid out, how they prove themselves. Knows bytes and names, no checkpoints.

ROOT/IDENTITY/       one directory for each identity: what other weights or another geometry made is never looked at
  manifest.json      the identity in clear
  lock               held by the one process that uses the directory
  pages/ states/ labels/     one file for each NAME; NAME.tmp while it is being written
  set-aside/         damaged and foreign files; never read again, the latest few are kept

file   ┌ preamble ───────────────────────────┬ head ┬ padding ┬ body at a multiple of 64 ┐
         magic, identity, lengths, digest of
         the body, digest of all before it and of the head
"""

import fcntl
import json
import os
import re
import shutil
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from errno import ENOSPC, EWOULDBLOCK
from pathlib import Path
from typing import NamedTuple

from blake3 import blake3

FORMAT = 2
MAGIC = b"nin-tier"
DIGEST_BYTES = 16
LENGTHS = struct.Struct("<IQ")
PREAMBLE_BYTES = len(MAGIC) + DIGEST_BYTES + LENGTHS.size + 2 * DIGEST_BYTES
ALIGNMENT = 64

NAME = re.compile(r"[0-9a-f]{32}")
"""Of a file; as long as a digest in hexadecimal."""
UNFINISHED = ".tmp"
MANIFEST = "manifest.json"
SET_ASIDE = "set-aside"
KEPT_ASIDE = 16
NO_FILE = -1
"""The size of what is no plain file."""
SPARE_BYTES = 1 << 30
"""Room left free on the file system, so that a full tier never stops whatever else lives there."""


class Kind(StrEnum):
    PAGE = "pages"
    STATE = "states"
    LABELS = "labels"


FOLDERS = (SET_ASIDE, *Kind)


class Damaged(Exception):
    """A file that isn't what its name promises."""


@dataclass(frozen=True, slots=True)
class Identity:
    """All that bytes on disk depend on beside their tokens. `weights` names weights, KV type and page size; `computing` the device
    and the model's number format.
    """

    weights: str
    computing: str
    page_tokens: int
    page_bytes: int
    image_bytes: int
    format: int = FORMAT

    @property
    def digest(self) -> bytes:
        return blake3(json.dumps(asdict(self), sort_keys=True).encode()).digest(DIGEST_BYTES)

    @property
    def manifest(self) -> bytes:
        return json.dumps(asdict(self), indent=1).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class Content:
    """A file's head and body. The body of one that was read may be written to."""

    head: bytes
    body: memoryview


class Promise(NamedTuple):
    """What a preamble says: lengths of head and body, digest of the body."""

    head: int
    body: int
    digest: bytes


def file_bytes(head: int, body: int) -> int:
    """The size of a file."""
    return _body_start(head) + body


class DiskFiles:
    """One identity's directory. Functions raise OSError as the system does, and Damaged where said. They may be called from any
    one thread at a time. `durable` makes a state file survive a power cut once it is there; all else is proved when it's read.
    """

    def __init__(self, root: Path, identity: Identity, durable: bool = True) -> None:
        self.directory = root / identity.digest.hex()
        self._identity = identity
        self._durable = durable
        self._lock: int | None = None

    def open(self, patience_s: float = 0.0) -> int:
        """Makes the directory if need be, and it is this process's until `close`. Unfinished files are removed. Returns how many files
        were set aside.
        """
        self.close()
        set_aside = sum(map(self._make_folder, FOLDERS))
        set_aside += self._make_way(self._lock_file, self._lock_file.is_file())
        self._take_lock(patience_s)
        for kind in Kind:
            for path in (self.directory / kind).glob("*" + UNFINISHED):
                self.remove(kind, path.name)
        return set_aside + self._check_manifest()

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def write(self, kind: Kind, name: str, head: bytes, body: Sequence[memoryview] = ()) -> None:
        """The file is there whole, in place of an older one, or not at all."""
        self._check_room(sum(map(len, body)))
        path = self.path(kind, name)
        unfinished = path.with_name(name + UNFINISHED)
        padding = bytes(_body_start(len(head)) - PREAMBLE_BYTES - len(head))
        try:
            with open(
                os.open(unfinished, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb", 0
            ) as file:
                start = self._preamble(head, body) + head + padding
                for part in (memoryview(start), *body):
                    _write_all(file.fileno(), part)
                if self._durable and kind is Kind.STATE:
                    os.fdatasync(file.fileno())
            unfinished.replace(path)
        except OSError:
            with suppress(OSError):
                unfinished.unlink()
            raise

    def read(self, kind: Kind, name: str) -> Content:
        """Raises Damaged for a file that doesn't prove itself, FileNotFoundError for one that isn't there."""
        with self.path(kind, name).open("rb", 0) as file:
            data = memoryview(bytearray(os.fstat(file.fileno()).st_size))
            _read_all(file.fileno(), data)
        head, promise = self._proved_head(data)
        body = data[_body_start(len(head)) :]
        if len(body) != promise.body:
            raise Damaged("its length is wrong")
        if blake3(body).digest(DIGEST_BYTES) != promise.digest:
            raise Damaged("the checksum of its body is wrong")
        return Content(head, body)

    def read_head(self, kind: Kind, name: str) -> bytes:
        """The same for the head alone; of the body the length is checked."""
        with self.path(kind, name).open("rb", 0) as file:
            size = os.fstat(file.fileno()).st_size
            preamble = memoryview(bytearray(min(size, PREAMBLE_BYTES)))
            _read_all(file.fileno(), preamble)
            wanted = PREAMBLE_BYTES + self._promise(preamble).head
            data = memoryview(bytearray(min(size, wanted)))
            os.lseek(file.fileno(), 0, os.SEEK_SET)
            _read_all(file.fileno(), data)
        head, promise = self._proved_head(data)
        if size != file_bytes(len(head), promise.body):
            raise Damaged("its length is wrong")
        return head

    def remove(self, kind: Kind, name: str) -> None:
        """A directory of that name, which can't be ours, is set aside instead."""
        path = self.path(kind, name)
        try:
            path.unlink(missing_ok=True)
        except OSError:
            if not path.is_dir():
                raise
            self.set_aside(kind, name)

    def set_aside(self, kind: Kind, name: str) -> None:
        """Out of the way, for a person to look at; the oldest of those give way."""
        self._put_aside(self.path(kind, name), f"{kind}-{name}")
        aside = (self.directory / SET_ASIDE).iterdir()
        for path in sorted(aside, key=lambda path: path.lstat().st_mtime)[:-KEPT_ASIDE]:
            with suppress(OSError):
                _discard(path)

    def names(self, kind: Kind) -> set[str]:
        """Of all that lies in a folder, whatever it is."""
        return set(os.listdir(self.directory / kind))

    def sizes(self, kind: Kind) -> Mapping[str, int]:
        """Every name in a folder, foreign ones too, with its size; NO_FILE for what is none."""
        with os.scandir(self.directory / kind) as entries:
            return {entry.name: _size(entry) for entry in entries}

    def path(self, kind: Kind, name: str) -> Path:
        return self.directory / kind / name

    @property
    def present(self) -> bool:
        """Whether the directory is still the one that was opened, with all its folders."""
        folders = all((self.directory / each).is_dir() for each in FOLDERS)
        return folders and (self.directory / MANIFEST).is_file()

    @property
    def _lock_file(self) -> Path:
        return self.directory / "lock"

    def _make_folder(self, name: str) -> int:
        """Returns how many things were set aside for it."""
        path = self.directory / name
        set_aside = self._make_way(path, path.is_dir())
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return set_aside

    def _make_way(self, path: Path, is_ours: bool) -> int:
        """Sets aside what is in the place of something that is ours and isn't; returns how many things that were."""
        if is_ours or not os.path.lexists(path):
            return 0
        self._put_aside(path, path.name)
        return 1

    def _put_aside(self, path: Path, name: str) -> None:
        aside = self.directory / SET_ASIDE / name
        if path == self.directory / SET_ASIDE:
            path.unlink()  # it is where things are put aside
            return
        if os.path.lexists(path):
            _discard(aside)
            path.rename(aside)

    def _take_lock(self, patience_s: float) -> None:
        handle = os.open(self._lock_file, os.O_CREAT | os.O_RDWR, 0o600)
        deadline = time.monotonic() + patience_s
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    os.close(handle)
                    raise OSError(EWOULDBLOCK, "another engine uses it") from None
                time.sleep(0.05)
            else:
                self._lock = handle
                return

    def _check_manifest(self) -> int:
        path = self.directory / MANIFEST
        sound = path.is_file() and path.read_bytes() == self._identity.manifest
        set_aside = self._make_way(path, sound)
        if not sound:
            unfinished = path.with_name(MANIFEST + UNFINISHED)
            unfinished.write_bytes(self._identity.manifest)
            unfinished.replace(path)
        return set_aside

    def _check_room(self, size: int) -> None:
        system = os.statvfs(self.directory)
        if system.f_bavail * system.f_frsize < size + SPARE_BYTES:
            raise OSError(ENOSPC, f"less than {SPARE_BYTES >> 20} MiB are free there")

    def _preamble(self, head: bytes, body: Sequence[memoryview]) -> bytes:
        lengths = LENGTHS.pack(len(head), sum(map(len, body)))
        digest = blake3()
        for part in body:
            digest.update(part)
        known = MAGIC + self._identity.digest + lengths + digest.digest(DIGEST_BYTES)
        return known + blake3(known + head).digest(DIGEST_BYTES)

    def _promise(self, data: memoryview) -> Promise:
        if len(data) < PREAMBLE_BYTES or data[: len(MAGIC)] != MAGIC:
            raise Damaged("it isn't a file of this tier")
        at = len(MAGIC) + DIGEST_BYTES
        if data[len(MAGIC) : at] != self._identity.digest:
            raise Damaged("it was made under another identity")
        digest = at + LENGTHS.size
        head, body = LENGTHS.unpack(data[at:digest])
        return Promise(head, body, bytes(data[digest : digest + DIGEST_BYTES]))

    def _proved_head(self, data: memoryview) -> tuple[bytes, Promise]:
        promise = self._promise(data)
        head = bytes(data[PREAMBLE_BYTES : PREAMBLE_BYTES + promise.head])
        known = bytes(data[: PREAMBLE_BYTES - DIGEST_BYTES])
        digest = data[PREAMBLE_BYTES - DIGEST_BYTES : PREAMBLE_BYTES]
        if len(head) != promise.head or blake3(known + head).digest(DIGEST_BYTES) != digest:
            raise Damaged("the checksum of its head is wrong")
        return head, promise


def _body_start(head: int) -> int:
    return -(-(PREAMBLE_BYTES + head) // ALIGNMENT) * ALIGNMENT


def _size(entry: os.DirEntry[str]) -> int:
    if not entry.is_file(follow_symlinks=False):
        return NO_FILE
    return entry.stat(follow_symlinks=False).st_size


def _discard(path: Path) -> None:
    """Whatever it is; nothing is none."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _write_all(handle: int, part: memoryview) -> None:
    while part:
        part = part[os.write(handle, part) :]


def _read_all(handle: int, into: memoryview) -> None:
    while into:
        count = os.readv(handle, [into])
        if count == 0:
            raise Damaged("it ends early")
        into = into[count:]
