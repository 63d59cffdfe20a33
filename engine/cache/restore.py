"""Brings checkpoints back from disk into memory, one at a time, through a bounded buffer. Knows cells and files, not who waits.

The cells are taken first and are nobody else's until all is read and proved; only then does the checkpoint have a place in
memory. Pages that memory has already are shared, not read.

disk ──worker──▶ buffer (a batch at a time) ──▶ cells on the host; on the device where the host has no room
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from engine.api import Tier
from engine.cache.arena import Arena
from engine.cache.checkpoints import Checkpoint, Checkpoints
from engine.cache.disk_files import Content, Kind
from engine.cache.disk_records import page_head, state_head
from engine.cache.disk_tier import DiskTier, Wanted
from engine.cache.pages import Page, Pages
from engine.cache.reclaim import Reclaim

BUFFER_BYTES = 32 << 20
"""Read at once at most (a state file is one read, whatever its size)."""
STALL_S = 30.0
"""Computing is quicker than a disk that takes longer for one read."""


@dataclass(slots=True, eq=False)
class Incoming:
    """A checkpoint on its way. It holds `pages` and the cells `image` of `arena` as a checkpoint there would; `left` are files not
    read yet with the cells that their bodies go to; the last were asked for at `asked_at`.
    """

    checkpoint: Checkpoint
    arena: Arena
    pages: tuple[Page, ...]
    image: tuple[int, ...]
    left: list[tuple[Wanted, tuple[int, ...]]]
    hinted: bool
    asked_at: float = 0.0

    @property
    def tier(self) -> Tier:
        return self.arena.tier


class Restores:
    """`on_bad` hears of each file that can't be used."""

    def __init__(
        self,
        tier: DiskTier,
        checkpoints: Checkpoints,
        pages: Pages,
        reclaim: Reclaim,
        on_bad: Callable[[Checkpoint, Exception], None],
    ) -> None:
        self._tier = tier
        self._checkpoints = checkpoints
        self._pages = pages
        self._reclaim = reclaim
        self._on_bad = on_bad
        self.incoming: Incoming | None = None

    def begin(self, checkpoint: Checkpoint, now: float, hinted: bool = False) -> bool:
        """Starts to bring it; False while another one is on its way or memory for it can't be had. What is `hinted` only takes room on the
        host that nothing is lost by, or that is free on the device, and gives way to what is waited for.
        """
        if not hinted and self._overtake(checkpoint):
            return True
        if self.incoming is not None or checkpoint.copy is None:
            return False
        line = self._checkpoints.line(checkpoint)
        pages = self._known_pages(checkpoint, line)
        arena = self._take_host(checkpoint, pages, now, hinted)
        arena = arena or self._take_device(pages, now, hinted)
        if arena is None:
            return False
        image = arena.allocate(self._checkpoints.image_cells)
        left = self._fill(checkpoint, line, pages, image, arena)
        self.incoming = Incoming(checkpoint, arena, pages, image, left, hinted)
        self._read_batch()
        return True

    def _overtake(self, checkpoint: Checkpoint) -> bool:
        """Somebody waits for this one: True if it is on its way on a hint; another one that is makes way."""
        incoming = self.incoming
        if incoming is None or not incoming.hinted:
            return False
        if incoming.checkpoint is checkpoint:
            incoming.hinted = False
            return True
        self._end(incoming)
        return False

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for what is on its way."""
        return self.incoming is not None and not self.incoming.hinted

    def is_stalled(self, now: float) -> bool:
        """Whether the disk has not answered for too long."""
        return self.incoming is not None and now - self.incoming.asked_at > STALL_S

    def give_up(self) -> None:
        """Whatever is on its way never comes."""
        if self.incoming is not None:
            self._end(self.incoming)

    def give_way(self, tier: Tier) -> bool:
        """Somebody needs the tier: a checkpoint on its way to the device, or brought on a hint only, stays on disk for now. False if there's
        none.
        """
        incoming = self.incoming
        if incoming is None or incoming.tier is not tier:
            return False
        if tier is Tier.HOST and not incoming.hinted:
            return False
        self._end(incoming)
        return True

    # --- room: afterwards the known pages are held in the arena, and there are cells for the others and the image -------------

    def _known_pages(self, checkpoint: Checkpoint, line: bytes) -> tuple[Page, ...]:
        """The pages that memory has, empty ones for those to be read."""
        full, tail = divmod(checkpoint.position, self._pages.page_tokens)
        found = self._checkpoints.shareable(checkpoint.tenant, memoryview(line), full)
        whole = (page if page and self._pages.is_whole(page) else Page() for page in found)
        return (*whole, *([Page()] if tail else []))

    def _take_host(
        self, checkpoint: Checkpoint, pages: tuple[Page, ...], now: float, hinted: bool
    ) -> Arena | None:
        there = [page for page in pages if page.host_cell is not None]
        self._hold_on_host(there)
        rank = self._reclaim.ranking.at(now).rank(checkpoint.key)
        if not self._reclaim.host_room(pages, rank, now, lossless=hinted):
            self._pages.release_on_host(there)
            return None
        held = set(there)
        self._hold_on_host([page for page in pages if page.alive and page not in held])
        return self._pages.host

    def _hold_on_host(self, full: Sequence[Page]) -> None:
        self._pages.hold_on_host(full, self._pages.page_tokens)

    def _take_device(self, pages: tuple[Page, ...], now: float, hinted: bool) -> Arena | None:
        there = [page for page in pages if page.device_cell is not None]
        self._pages.hold_on_device(there)
        missing = len(pages) - len(there) + self._checkpoints.image_cells
        free = missing <= self._pages.device.free
        if not free and (hinted or not self._reclaim.device_room(missing, now)):
            self._pages.release_on_device(there)
            return None
        held = set(there)
        others = [page for page in pages if page.alive and page not in held]
        self._pages.bring_to_device(others)
        self._pages.hold_on_device(others)
        return self._pages.device

    def _fill(
        self,
        checkpoint: Checkpoint,
        line: bytes,
        pages: tuple[Page, ...],
        image: tuple[int, ...],
        arena: Arena,
    ) -> list[tuple[Wanted, tuple[int, ...]]]:
        """Gives the empty pages their cells; returns what is to be read into which."""
        assert checkpoint.copy is not None
        names, size, cell = checkpoint.copy.names, self._pages.page_tokens, arena.cell_bytes
        left: list[tuple[Wanted, tuple[int, ...]]] = []
        for number, name in enumerate(names.pages):
            if not pages[number].alive:
                wanted = Wanted(Kind.PAGE, name, page_head(names, number, line, size), cell)
                left.append((wanted, (self._pages.hold_to_fill(pages[number], arena, size),)))
        tail = checkpoint.position % size
        cells = (self._pages.hold_to_fill(pages[-1], arena, tail), *image) if tail else image
        head = state_head(checkpoint.tenant, line)
        return [*left, (Wanted(Kind.STATE, names.state, head, len(cells) * cell), cells)]

    # --- reading -------------------------------------------------------------------------------

    def _read_batch(self) -> None:
        incoming = self.incoming
        assert incoming is not None
        count = max(1, BUFFER_BYTES // incoming.arena.cell_bytes)
        batch, incoming.left = incoming.left[:count], incoming.left[count:]

        def then(outcome: Sequence[Content] | Exception) -> None:
            if self.incoming is not incoming:
                return
            if not self._is_wanted(incoming.checkpoint):
                self._end(incoming)
            elif isinstance(outcome, Exception):
                self._end(incoming)
                self._tier.counters.disk_restores_failed += 1
                self._on_bad(incoming.checkpoint, outcome)
            else:
                for (_, cells), content in zip(batch, outcome, strict=True):
                    incoming.arena.write(cells, _rows(content, len(cells)))
                self._go_on(incoming)

        incoming.asked_at = self._tier.now
        self._tier.read([file for file, _ in batch], then)

    def _is_wanted(self, checkpoint: Checkpoint) -> bool:
        """Whether it's still there, and only on disk."""
        return checkpoint.tier is Tier.DISK and checkpoint.key in self._checkpoints.all

    def _go_on(self, incoming: Incoming) -> None:
        if incoming.left:
            self._read_batch()
            return
        self.incoming = None
        self._tier.counters.disk_checkpoints_restored += 1
        self._checkpoints.come_to_memory(
            incoming.checkpoint, incoming.pages, incoming.image, incoming.tier
        )

    def _end(self, incoming: Incoming) -> None:
        """Gives back all that it held."""
        self.incoming = None
        incoming.arena.release(incoming.image)
        if incoming.arena is self._pages.host:
            self._pages.release_on_host(incoming.pages)
        else:
            self._pages.release_on_device(incoming.pages)


def _rows(content: Content, count: int) -> torch.Tensor:
    """The body as [count, words] int64."""
    return torch.frombuffer(content.body, dtype=torch.int64).view(count, -1)
