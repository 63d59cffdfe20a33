"""One tier's memory as equal cells with a free list. Doesn't know what a cell holds: a KV page or a part of a state image.

rows [cells, words] int64
┌────────┬────────┬────────┬────────┬────────┐
│ page   │ image ·│ page   │ image ·│  free  │     an image's cells need not be neighbours
└────────┴────────┴────────┴────────┴────────┘
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from engine.api import Tier

log = logging.getLogger(__name__)

WORD_BYTES = 8
GIB = 1 << 30


class Arena:
    """Owns `rows` [cells, words] int64 on any device. Mutated only by the functions here and, for KV, by the model. `unpinned_bytes` of it
    should have been page-locked and are not.
    """

    def __init__(self, tier: Tier, rows: torch.Tensor, unpinned_bytes: int = 0) -> None:
        assert rows.dtype == torch.int64
        assert rows.dim() == 2
        self.tier = tier
        self.rows = rows
        self.unpinned_bytes = unpinned_bytes
        self._free = list(range(rows.shape[0] - 1, -1, -1))

    @property
    def cells(self) -> int:
        return self.rows.shape[0]

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def used(self) -> int:
        return self.cells - self.free

    @property
    def cell_bytes(self) -> int:
        return self.rows.shape[1] * WORD_BYTES

    def free_cells(self) -> tuple[int, ...]:
        return tuple(self._free)

    def allocate(self, count: int) -> tuple[int, ...]:
        """Takes `count` cells; the caller has seen to it that they're there."""
        assert count <= len(self._free), (self.tier, count, len(self._free))
        return tuple(self._free.pop() for _ in range(count))

    @contextmanager
    def taken(self, count: int) -> Iterator[tuple[int, ...]]:
        """`count` cells that are given back if what is done with them fails."""
        cells = self.allocate(count)
        try:
            yield cells
        except Exception:
            self.release(cells)
            raise

    def release(self, cells: Sequence[int]) -> None:
        self._free.extend(cells)

    def write(self, cells: Sequence[int], values: torch.Tensor) -> None:
        """`values` [len(cells), words] int64, copied into those cells."""
        self.rows.index_copy_(0, self._index(cells), values.to(self.rows.device))

    def copy(self, cells: Sequence[int], source: "Arena", sources: Sequence[int]) -> None:
        """What the cells `sources` of another arena hold, one by one: a copy in between would take memory, and on the CPU most of the time."""
        for cell, other in zip(cells, sources, strict=True):
            self.rows[cell].copy_(source.rows[other])

    def read(self, cells: Sequence[int]) -> torch.Tensor:
        """A copy [len(cells), words] int64, on this arena's device."""
        return self.rows.index_select(0, self._index(cells))

    def _index(self, cells: Sequence[int]) -> torch.Tensor:
        return torch.tensor(cells, dtype=torch.int64, device=self.rows.device)


def host_arena(cells: int, words: int, pinned: bool) -> Arena:
    """Ordinary memory, taken from the system as it's first written; page-locked if asked for (a CUDA device copies faster then) and
    granted.
    """
    size = cells * words * WORD_BYTES
    try:
        return Arena(Tier.HOST, host_rows(cells, words, pinned))
    except RuntimeError as error:
        if not pinned:
            raise
        log.warning(
            "the system refuses %.1f GiB of page-locked memory (%s): the host tier takes ordinary memory, and copies are slower",
            size / GIB,
            error,
        )
    return Arena(Tier.HOST, host_rows(cells, words, pinned=False), unpinned_bytes=size)


def host_rows(cells: int, words: int, pinned: bool) -> torch.Tensor:
    """[cells, words] int64, not written to. Raises RuntimeError where it can't be had."""
    return torch.empty((cells, words), dtype=torch.int64, pin_memory=pinned)


def device_arena(kv: torch.Tensor) -> Arena:
    """The KV pool [pages, ...] seen as cells: no second allocation, so images and pages share one budget."""
    rows = kv.view(kv.shape[0], -1).view(torch.int64)
    return Arena(Tier.DEVICE, rows)
