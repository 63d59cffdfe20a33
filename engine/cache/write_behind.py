"""Copies checkpoints to disk while they are still in memory, a piece a step. Knows what is worth writing first, not how it's written.

One checkpoint at a time: pages that the disk lacks, then its state, then its labels; with these it counts as written. The
bytes of a piece are copied out of the pools here, so the worker never looks at memory that may change.
"""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

import torch

from engine.api import AnchorKind, ContinuationId, Tier
from engine.cache.checkpoints import Checkpoint, Checkpoints
from engine.cache.disk_files import Kind, file_bytes
from engine.cache.disk_records import (
    labels_head,
    name_files,
    page_head,
    state_head,
    stored_label,
)
from engine.cache.disk_tier import LEAST_LABEL_BYTES, Copy, DiskTier, File
from engine.cache.pages import Pages
from engine.cache.prefix_index import TOKEN_BYTES
from engine.cache.reclaim import Reclaim
from engine.planner.residency import EXPENDABLE, PINNED, Held, Rank, choose_victims, written_first

PIECE_BYTES = 8 << 20
"""Copied out of the pools in one step at most (a state image is one piece, whatever its size)."""


@dataclass(slots=True)
class Writing:
    """A checkpoint on its way; `left` are the numbers of pages still to be written."""

    checkpoint: Checkpoint
    copy: Copy
    line: bytes
    left: list[int]


class WriteBehind:
    """`feed` hands the worker one job when it has none from here."""

    def __init__(
        self, tier: DiskTier, checkpoints: Checkpoints, pages: Pages, reclaim: Reclaim
    ) -> None:
        self._tier = tier
        self._checkpoints = checkpoints
        self._pages = pages
        self._reclaim = reclaim
        self._writing: Writing | None = None
        self._waits = False
        self._fruitless: tuple[int, int] | None = None

    def feed(self, now: float, busy: Set[ContinuationId]) -> bool:
        """The next piece, if there's one and the disk is ready for it; continuations in `busy` come last. False if nothing is left."""
        if self._waits or not self._tier.writable(now):
            return self._waits
        if self._checkpoints.relabelled:
            self._write_labels()
        if not self._waits and self._next(now, busy):
            self._write_piece()
        return self._waits

    def keep_limit(self, now: float) -> None:
        """Gives up the least worthy copies until the rest is within the limit."""
        for _, victim in self._copies(now):
            if self._tier.used_bytes <= self._tier.limit_bytes:
                return
            self._evict(victim)

    def _next(self, now: float, busy: Set[ContinuationId]) -> bool:
        """Sees to a checkpoint to be written; looks for one only when something may have changed since the last look."""
        if self._writing is not None and not self._writing.copy.given_up:
            return True
        self._writing = None
        state = (self._checkpoints.serial, self._tier.used_bytes)
        if state != self._fruitless:
            self._writing = self._choose(now, busy)
            self._fruitless = state if self._writing is None else None
        return self._writing is not None

    def _choose(self, now: float, busy: Set[ContinuationId]) -> Writing | None:
        """The first in order that there's room for, free or at the cost of what is worth less."""
        unwritten = [each for each in self._checkpoints.all.values() if each.copy is None]
        ranked = [pair for pair in self._ranked(unwritten, now) if pair[0][0] != EXPENDABLE]
        ranked.sort(key=lambda pair: _order(pair[0], pair[1], busy))
        copies = self._copies(now) if ranked else []
        free = self._tier.limit_bytes - self._tier.used_bytes
        hopeless: Rank | None = None
        for rank, checkpoint in ranked:
            if hopeless is None or rank > hopeless or self._most_bytes(checkpoint) <= free:
                order = [each for each_rank, each in copies if each_rank < rank]
                writing = self._begin(checkpoint, order)
                if writing is not None:
                    return writing
                # What is worth less has no better chance, unless what failed could never fit.
                fits = self._most_bytes(checkpoint) <= self._tier.limit_bytes
                hopeless = max(rank, hopeless or rank) if fits else hopeless
        return None

    def _most_bytes(self, checkpoint: Checkpoint) -> int:
        """What its copy takes if nothing of it is shared."""
        shape = self._tier.shape
        pages = checkpoint.position // shape.page_tokens * shape.page_file_bytes
        return pages + self._state_bytes(checkpoint) + LEAST_LABEL_BYTES

    def _state_bytes(self, checkpoint: Checkpoint) -> int:
        shape, position = self._tier.shape, checkpoint.position
        head = len(state_head(checkpoint.tenant, b"")) + position * TOKEN_BYTES
        return file_bytes(head, shape.body_cells(position) * shape.cell_bytes)

    def _begin(self, checkpoint: Checkpoint, order: Sequence[Checkpoint]) -> Writing | None:
        tier, line = self._tier, self._checkpoints.line(checkpoint)
        names = name_files(checkpoint.tenant, line, tier.shape.page_tokens)
        size = self._state_bytes(checkpoint)
        if not self._make_room(tier.missing_bytes(names, size), frozenset(names.pages), order):
            return None
        checkpoint.copy = tier.begin(names, size)
        left = [number for number, page in enumerate(checkpoint.copy.pages) if not page.written]
        return Writing(checkpoint, checkpoint.copy, line, left)

    # --- room ----------------------------------------------------------------------------------

    def _ranked(
        self, checkpoints: Iterable[Checkpoint], now: float
    ) -> list[tuple[Rank, Checkpoint]]:
        ranking = self._reclaim.ranking.at(now)
        return [(ranking.rank(each.key), each) for each in checkpoints]

    def _copies(self, now: float) -> list[tuple[Rank, Checkpoint]]:
        """What is on disk, the least worthy first; not what is pinned or just about to be used."""
        every, awaited = self._checkpoints.all.values(), self._reclaim.awaited
        on_disk = [each for each in every if each.on_disk and each.key not in awaited]
        ranked = [pair for pair in self._ranked(on_disk, now) if pair[0][0] != PINNED]
        return sorted(ranked, key=lambda pair: (pair[0], pair[1].key))

    def _make_room(self, size: int, ours: Set[str], order: Sequence[Checkpoint]) -> bool:
        """Sees to `size` bytes more, of which pages named in `ours` are part, at the cost of `order` from its front; all or nothing."""
        tier = self._tier
        copies = [each.copy for each in order if each.copy is not None]
        held = [
            Held(copy.own_bytes, [page for page in copy.pages if page.name not in ours])
            for copy in copies
        ]
        short = tier.used_bytes + size - tier.limit_bytes
        count = choose_victims(held, lambda page: page.holders, short, tier.shape.page_file_bytes)
        if count is None:
            return False
        for victim in order[:count]:
            self._evict(victim)
        return True

    def _evict(self, victim: Checkpoint) -> None:
        if victim.tier is Tier.DISK:
            self._reclaim.drop(victim, "disk limit")
        else:
            self._checkpoints.give_up_copy(victim)

    # --- pieces --------------------------------------------------------------------------------

    def _write_piece(self) -> None:
        writing = self._writing
        assert writing is not None
        count = max(1, PIECE_BYTES // self._tier.shape.cell_bytes)
        numbers, writing.left = writing.left[:count], writing.left[count:]
        if numbers:
            self._submit([self._page_file(writing, number) for number in numbers], writing, numbers)
        else:
            self._submit(
                [self._state_file(writing), self._labels_file(writing.checkpoint)], writing
            )

    def _submit(self, files: Sequence[File], writing: Writing, numbers: Sequence[int] = ()) -> None:
        copy = writing.copy

        def then(written: bool) -> None:
            self._waits = False
            if copy.given_up:
                return
            if not written:
                self._checkpoints.give_up_copy(writing.checkpoint)
                return
            for number in numbers:
                copy.pages[number].written = True
            if not numbers:
                copy.complete = True
                self._tier.relabelled(copy, files[-1].size)
                self._tier.counters.disk_checkpoints_written += 1
                self._writing = None

        self._waits = True
        self._tier.write(files, then)

    def _write_labels(self) -> None:
        """Of all copies that are complete; one under way gets its labels at its end."""
        changed = [self._checkpoints.all[key] for key in self._checkpoints.relabelled]
        complete = [each for each in changed if each.on_disk]
        files = [self._labels_file(each) for each in complete]

        def then(written: bool) -> None:
            self._waits = False
            for each, file in zip(complete, files, strict=True):
                copy = each.copy
                if copy is None or copy.given_up:
                    continue
                if written:
                    self._tier.relabelled(copy, file.size)
                else:
                    self._checkpoints.relabelled[each.key] = None
            self.keep_limit(self._tier.now)

        for each in complete:
            del self._checkpoints.relabelled[each.key]
        if files:
            self._waits = True
            self._tier.write(files, then)

    def _page_file(self, writing: Writing, number: int) -> File:
        head = page_head(writing.copy.names, number, writing.line, self._tier.shape.page_tokens)
        contents = self._pages.contents(writing.checkpoint.pages[number])
        return File(Kind.PAGE, writing.copy.names.pages[number], head, (_bytes(contents),))

    def _state_file(self, writing: Writing) -> File:
        checkpoint = writing.checkpoint
        arena = self._pages.device if checkpoint.tier is Tier.DEVICE else self._pages.host
        rows = arena.read(checkpoint.image)
        head = state_head(checkpoint.tenant, writing.line)
        has_tail = checkpoint.position % self._tier.shape.page_tokens > 0
        tail = [_bytes(self._pages.contents(checkpoint.pages[-1]))] if has_tail else []
        return File(Kind.STATE, writing.copy.names.state, head, (*tail, _bytes(rows)))

    def _labels_file(self, checkpoint: Checkpoint) -> File:
        assert checkpoint.copy is not None
        retentions = self._reclaim.retentions
        labels = [
            stored_label(each, retentions[each.continuation]) for each in checkpoint.labels.values()
        ]
        state = checkpoint.copy.names.state
        return File(Kind.LABELS, state, labels_head(state, labels))


def _order(rank: Rank, checkpoint: Checkpoint, busy: Set[ContinuationId]) -> tuple[object, ...]:
    is_tip = any(label.kind is AnchorKind.TIP for label in checkpoint.labels.values())
    return written_first(rank, is_tip, busy.isdisjoint(checkpoint.labels))


def _bytes(rows: torch.Tensor) -> memoryview:
    return rows.cpu().numpy().data.cast("B")
