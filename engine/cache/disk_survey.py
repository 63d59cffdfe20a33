"""What an earlier process left on disk, found again by names, sizes and heads; no contents are read. Knows files, no memory.

Kept is what is whole: a state, its labels and all its pages. What is unfinished or belongs to nothing is removed, what is
damaged or foreign is set aside.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from engine.api import TenantKey
from engine.cache.disk_files import NAME, NO_FILE, Damaged, DiskFiles, Kind, file_bytes
from engine.cache.disk_records import (
    Names,
    StoredLabel,
    name_files,
    page_head_bytes,
    read_labels_head,
    read_state_head,
)
from engine.cache.prefix_index import TOKEN_BYTES

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes that every file of one identity has. Bytes; `image_cells` cells of `cell_bytes` make a state image."""

    page_tokens: int
    cell_bytes: int
    image_cells: int

    @property
    def page_file_bytes(self) -> int:
        return file_bytes(page_head_bytes(self.page_tokens), self.cell_bytes)

    def body_cells(self, position: int) -> int:
        """Cells of a state file: the tail's page where there is a tail, and the image."""
        return int(position % self.page_tokens > 0) + self.image_cells


@dataclass(frozen=True, slots=True)
class Found:
    """A whole checkpoint on disk."""

    tenant: TenantKey
    line: bytes
    names: Names
    labels: tuple[StoredLabel, ...]
    state_bytes: int
    label_bytes: int


@dataclass(frozen=True, slots=True)
class Survey:
    found: tuple[Found, ...]
    set_aside: int


def survey(files: DiskFiles, shape: Shape) -> Survey:
    """Reads the directory and leaves only whole checkpoints in it."""
    return _Surveyor(files, shape).survey()


def is_ours(name: str, size: int) -> bool:
    return NAME.fullmatch(name) is not None and size != NO_FILE


class _Surveyor:
    def __init__(self, files: DiskFiles, shape: Shape) -> None:
        self._files = files
        self._shape = shape
        self._set_aside = 0

    def survey(self) -> Survey:
        sizes = {kind: self._ours(kind) for kind in Kind}
        pages = self._sound_pages(sizes[Kind.PAGE])
        found = []
        for name, size in sizes[Kind.STATE].items():
            each = self._find(name, size, sizes[Kind.LABELS], pages)
            if each is not None:
                found.append(each)
        self._sweep(Kind.STATE, sizes[Kind.STATE], (each.names.state for each in found))
        self._sweep(Kind.LABELS, sizes[Kind.LABELS], (each.names.state for each in found))
        used = (name for each in found for name in each.names.pages)
        self._sweep(Kind.PAGE, pages, used)
        return Survey(tuple(found), self._set_aside)

    def _ours(self, kind: Kind) -> dict[str, int]:
        sizes = dict(self._files.sizes(kind))
        for name in [name for name in sizes if not is_ours(name, sizes[name])]:
            self._put_aside(kind, name, "it isn't a file of this tier")
            del sizes[name]
        return sizes

    def _sound_pages(self, sizes: Mapping[str, int]) -> dict[str, int]:
        wanted = self._shape.page_file_bytes
        for name, size in sizes.items():
            if size != wanted:
                self._put_aside(Kind.PAGE, name, f"it has {size} bytes instead of {wanted}")
        return {name: size for name, size in sizes.items() if size == wanted}

    def _find(
        self, name: str, size: int, labels: Mapping[str, int], pages: Mapping[str, int]
    ) -> Found | None:
        """None for what isn't whole; what of it is damaged has been set aside then, the rest is for sweeping."""
        kind = Kind.STATE
        try:
            head = self._files.read_head(kind, name)
            tenant, line = read_state_head(head)
            names = name_files(tenant, line, self._shape.page_tokens)
            body = self._shape.body_cells(len(line) // TOKEN_BYTES) * self._shape.cell_bytes
            if names.state != name or size != file_bytes(len(head), body):
                raise Damaged("it isn't what its name says")
            if name not in labels or any(page not in pages for page in names.pages):
                return None
            kind = Kind.LABELS
            stored = read_labels_head(self._files.read_head(kind, name), name)
        except (Damaged, OSError) as damage:
            self._put_aside(kind, name, str(damage))
            return None
        return Found(tenant, line, names, stored, size, labels[name])

    def _put_aside(self, kind: Kind, name: str, why: str) -> None:
        log.warning("%s was set aside: %s", self._files.path(kind, name), why)
        self._files.set_aside(kind, name)
        self._set_aside += 1

    def _sweep(self, kind: Kind, names: Mapping[str, int], used: Iterable[str]) -> None:
        for name in set(names) - set(used):
            self._files.remove(kind, name)
