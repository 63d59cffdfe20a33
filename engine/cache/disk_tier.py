"""The accounts of the disk tier: which files there are, who counts on them, how much that is. Knows names and bytes, no memory.

A page's file is there once, whatever number of copies hold it, and goes with the last of them. All is decided here, on the
engine's thread; the worker carries it out later, in order.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from engine.api import Tier, TierUsage
from engine.cache.disk_files import Content, Damaged, DiskFiles, Kind, file_bytes
from engine.cache.disk_records import Names
from engine.cache.disk_survey import Found, Shape
from engine.cache.disk_worker import DiskWorker

log = logging.getLogger(__name__)

RETRY_S = 60.0
"""How long after a failure nothing is written."""
LEAST_LABEL_BYTES = 4096
"""What labels count as at least; they change, and may then take no more than was seen to."""

T = TypeVar("T")


class StoredPage:
    """A full page's file: there once `written`."""

    __slots__ = ("holders", "name", "written")

    def __init__(self, name: str, written: bool) -> None:
        self.name = name
        self.written = written
        self.holders = 0


@dataclass(slots=True, eq=False)
class Copy:
    """A checkpoint's files. Only a `complete` one counts; one that was `given_up` is being removed."""

    names: Names
    pages: tuple[StoredPage, ...]
    state_bytes: int
    label_bytes: int = LEAST_LABEL_BYTES
    complete: bool = False
    given_up: bool = False

    @property
    def own_bytes(self) -> int:
        return self.state_bytes + self.label_bytes


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file to be read, and what it must be."""

    kind: Kind
    name: str
    head: bytes
    body_bytes: int


@dataclass(frozen=True, slots=True)
class File:
    """A file to be written."""

    kind: Kind
    name: str
    head: bytes
    body: tuple[memoryview, ...] = field(default=(), repr=False)

    @property
    def size(self) -> int:
        """On disk, in bytes."""
        return file_bytes(len(self.head), sum(map(len, self.body)))


@dataclass(frozen=True, slots=True)
class Gone:
    """A file to be removed."""

    kind: Kind
    name: str


class Unreadable(Exception):
    """A file that can't be used: it was `set_aside`, or it is gone."""

    def __init__(self, file: Wanted, error: Exception) -> None:
        super().__init__(f"{file.kind}/{file.name}: {error}")
        self.file = file
        self.set_aside = not isinstance(error, FileNotFoundError)


class Vanished(OSError):
    """The whole directory is gone."""


@dataclass(slots=True)
class DiskCounters:
    disk_checkpoints_written: int = 0
    disk_checkpoints_restored: int = 0
    disk_restores_failed: int = 0
    disk_written_bytes: int = 0
    disk_read_bytes: int = 0
    disk_files_set_aside: int = 0
    disk_failures: int = 0


class DiskTier:
    """Owns `pages` (by name) and `copies`, and the order of jobs. `opened` is False until the directory has been read, and again
    when it has vanished; a tier that failed is not written to before `retry_at`. `moving` counts jobs under way for a file; `left` are
    files that could not be removed yet.
    """

    def __init__(
        self, files: DiskFiles, worker: DiskWorker, shape: Shape, limit_bytes: int
    ) -> None:
        self.files = files
        self.worker = worker
        self.shape = shape
        self.limit_bytes = limit_bytes
        self.pages: dict[str, StoredPage] = {}
        self.copies: dict[str, Copy] = {}
        self.used_bytes = 0
        self.opened = False
        self.retry_at = 0.0
        self.note = ""
        self.counters = DiskCounters()
        self.left: list[Gone] = []
        self.moving: Counter[tuple[Kind, str]] = Counter()
        self.on_vanished: Callable[[], None] = self.forget_all
        self.now = 0.0

    def collect(self, now: float) -> None:
        """Takes in what the worker has done since."""
        self.now = now
        self.worker.collect()

    def usage(self) -> TierUsage:
        return TierUsage(Tier.DISK, self.used_bytes, self.limit_bytes, self.note)

    def writable(self, now: float) -> bool:
        return self.opened and now >= self.retry_at

    # --- accounts ------------------------------------------------------------------------------

    def missing_bytes(self, names: Names, state_bytes: int) -> int:
        """What `begin` of these would add."""
        pages = sum(name not in self.pages for name in names.pages)
        return state_bytes + LEAST_LABEL_BYTES + pages * self.shape.page_file_bytes

    def begin(self, names: Names, state_bytes: int) -> Copy:
        """The account of files that are yet to be written; full pages that are there already are shared."""
        copy = Copy(names, tuple(self._page(name, False) for name in names.pages), state_bytes)
        self._enter(copy)
        return copy

    def enter_found(self, found: Found) -> Copy:
        """The account of files that are there."""
        names = found.names
        pages = tuple(self._page(name, True) for name in names.pages)
        copy = Copy(names, pages, found.state_bytes, complete=True)
        self._enter(copy)
        self.relabelled(copy, found.label_bytes)
        return copy

    def give_up(self, copy: Copy) -> None:
        """Ends a copy: its files go, and pages that no other holds."""
        copy.given_up = True
        del self.copies[copy.names.state]
        self.used_bytes -= copy.own_bytes
        gone = [Gone(Kind.LABELS, copy.names.state), Gone(Kind.STATE, copy.names.state)]
        for page in copy.pages:
            page.holders -= 1
            if page.holders == 0:
                del self.pages[page.name]
                self.used_bytes -= self.shape.page_file_bytes
                gone.append(Gone(Kind.PAGE, page.name))
        self._remove(gone)

    def relabelled(self, copy: Copy, label_bytes: int) -> None:
        """Its labels file now has so many bytes."""
        label_bytes = max(label_bytes, LEAST_LABEL_BYTES)
        self.used_bytes += label_bytes - copy.label_bytes
        copy.label_bytes = label_bytes

    def forget_all(self) -> None:
        """The files are gone with their directory."""
        for copy in self.copies.values():
            copy.given_up = True
        self.pages.clear()
        self.copies.clear()
        self.left.clear()
        self.used_bytes = 0

    def _page(self, name: str, written: bool) -> StoredPage:
        page = self.pages.get(name)
        if page is None:
            page = self.pages[name] = StoredPage(name, written)
            self.used_bytes += self.shape.page_file_bytes
        page.holders += 1
        return page

    def _enter(self, copy: Copy) -> None:
        assert copy.names.state not in self.copies
        self.copies[copy.names.state] = copy
        self.used_bytes += copy.own_bytes

    # --- jobs ----------------------------------------------------------------------------------

    def write(self, files: Sequence[File], then: Callable[[bool], None]) -> None:
        """Writes them in order; `then` hears whether all are there. If not, the tier has been suspended."""

        def work() -> None:
            try:
                for file in files:
                    self.files.write(file.kind, file.name, file.head, file.body)
            except OSError as error:
                if not self.files.present:
                    raise Vanished("its directory has vanished") from error
                raise

        def done(outcome: Exception | None) -> None:
            if outcome is None:
                self.counters.disk_written_bytes += sum(file.size for file in files)
                self.recover()
            else:
                self.suspend(outcome)
            then(outcome is None)

        self._submit(files, work, done)

    def read(
        self, files: Sequence[Wanted], then: Callable[[Sequence[Content] | Exception], None]
    ) -> None:
        """Reads them, each proved by its checksums and to be the wanted one; or an exception, Unreadable where one file is to blame."""

        def done(outcome: Sequence[Content] | Exception) -> None:
            if isinstance(outcome, Exception):
                self._note_unread(outcome)
            else:
                self.counters.disk_read_bytes += sum(len(each.body) for each in outcome)
            then(outcome)

        self._submit(files, lambda: [self._read(file) for file in files], done, reading=True)

    def suspend(self, error: Exception) -> None:
        """Writes nothing for a while; says so once."""
        why = getattr(error, "strerror", None) or str(error)
        if not self.note:
            log.warning("nothing is written to %s: %s; tried again", self.files.directory, why)
        self.note = f"not written to: {why}"
        self.retry_at = self.now + RETRY_S
        self.counters.disk_failures += 1
        if isinstance(error, Vanished):
            self.opened = False
            self.on_vanished()

    def recover(self) -> None:
        if self.note:
            log.warning("%s is written to again", self.files.directory)
            self.note = ""
        if self.left:
            left, self.left = self.left, []
            self._remove([file for file in left if not self._counts(file)], again=True)

    def _note_unread(self, error: Exception) -> None:
        log.warning("state on disk can't be used: %s", error)
        if isinstance(error, Unreadable):
            self.counters.disk_files_set_aside += error.set_aside
        elif isinstance(error, Vanished):
            self.suspend(error)

    def _read(self, file: Wanted) -> Content:
        try:
            content = self.files.read(file.kind, file.name)
            if content.head != file.head:
                raise Damaged("it holds other tokens")
            if len(content.body) != file.body_bytes:
                raise Damaged("its body has another size")
        except (OSError, Damaged) as error:
            if not self.files.present:
                raise Vanished("its directory has vanished") from error
            with suppress(OSError):
                self.files.set_aside(file.kind, file.name)
            raise Unreadable(file, error) from error
        return content

    def _remove(self, gone: Sequence[Gone], again: bool = False) -> None:
        """What can't be removed now is tried once more when the disk is written to `again`."""

        def work() -> None:
            for file in gone:
                self.files.remove(file.kind, file.name)

        def done(outcome: Exception | None) -> None:
            if outcome is not None and again:
                log.warning("files that are no longer needed stay until a restart: %s", outcome)
            elif outcome is not None:
                self.left += gone
                self.suspend(outcome)

        self._submit(gone, work, done)

    def _counts(self, file: Gone) -> bool:
        """Whether a file of this name is accounted for (again)."""
        return file.name in (self.pages if file.kind is Kind.PAGE else self.copies)

    def _submit(
        self,
        files: Sequence[Gone | File | Wanted],
        work: Callable[[], T],
        done: Callable[[T | Exception], None],
        reading: bool = False,
    ) -> None:
        names = [(file.kind, file.name) for file in files]
        self.moving.update(names)

        def then(outcome: T | Exception) -> None:
            self.moving.subtract(names)
            self.moving = +self.moving
            done(outcome)

        self.worker.submit(work, then, reading)
