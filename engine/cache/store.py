"""The cache as the scheduler sees it: look up, open a lane, grow it, save, close. Owns the order of moves inside one operation.

Every function leaves the accounts whole: `integrity.check` holds before and after each.
"""

import sys
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from itertools import chain

from engine.api import (
    AnchorKind,
    CheckpointId,
    CheckpointInfo,
    ContinuationId,
    ContinuationInfo,
    TenantKey,
    Tier,
    TierUsage,
)
from engine.cache.arena import device_arena, host_arena
from engine.cache.checkpoints import Checkpoint, Checkpoints
from engine.cache.disk import Disk
from engine.cache.disk_files import DiskFiles
from engine.cache.disk_survey import Shape
from engine.cache.disk_tier import DiskTier
from engine.cache.disk_worker import DiskWorker
from engine.cache.images import Images
from engine.cache.lanes import Lanes
from engine.cache.opening import Opening
from engine.cache.pages import Page, Pages
from engine.cache.prefetch import Prefetch
from engine.cache.prefix_index import PrefixIndex
from engine.cache.ranking import Ranking
from engine.cache.reclaim import Reclaim
from engine.models.batch import CachePools
from engine.planner.admission import Candidate, Pools
from engine.planner.memory import MemoryPlan, ceil_div
from engine.planner.residency import Label, Rank


@dataclass(frozen=True, slots=True)
class Line:
    """A tenant's tokens, 4 bytes each; the first `len` of them are what is asked about."""

    tenant: TenantKey
    tokens: memoryview


@dataclass(frozen=True, slots=True)
class Match:
    """`matched`: tokens of the line that some stored line begins with too; `candidates` stand on the line itself."""

    matched: int
    candidates: tuple[Candidate, ...]


class Cache:
    """Owns the pools' contents. `prefix` starts every checkpoint id, so that ids of two engine processes differ. `disk` None: there's
    no disk tier; what it holds is there after `disk.start`.
    """

    def __init__(
        self,
        plan: MemoryPlan,
        pools: CachePools,
        prefix: str,
        disk: tuple[DiskFiles, DiskWorker] | None = None,
    ) -> None:
        device = device_arena(pools.kv)
        host = host_arena(plan.host_cells, device.rows.shape[1], pools.kv.is_cuda)
        images = Images(pools.recurrent, pools.conv, device.cell_bytes)
        index = PrefixIndex[Checkpoint](plan.geometry.page_tokens)
        self.plan = plan
        self.pages = Pages(device, host, plan.geometry.page_tokens)
        self.index = index
        shape = Shape(plan.geometry.page_tokens, device.cell_bytes, images.cells)
        tier = None if disk is None else DiskTier(*disk, shape, plan.disk_bytes)
        ranking = Ranking()
        self.checkpoints = Checkpoints(self.pages, images, index, prefix, ranking, tier)
        self.lanes = Lanes(plan.lanes, plan.pages_per_context)
        self.reclaim = Reclaim(self.pages, self.checkpoints, ranking)
        self._opening = Opening(self.checkpoints, self.pages, self.lanes, self.reclaim)
        self.disk: Disk | None = None
        if tier is not None:
            self.disk = Disk(tier, self.checkpoints, self.pages, self.reclaim)
        self.prefetch = Prefetch(self.checkpoints, self.reclaim, self.disk)

    def look_up(self, line: Line) -> Match:
        """Mutates nothing. O(pages of the line + checkpoints on it)."""
        walk = self.checkpoints.walk(line.tenant, line.tokens)
        found = (Candidate(each.key, each.position, each.tier) for each in walk.entries)
        return Match(walk.matched, tuple(found))

    def pools(self, source: Candidate | None, needed: int, growth: int, now: float) -> Pools:
        """The device for planner.admission; `growth` cells are promised to prompts that run already. Where `needed` more are free, what is
        pinned doesn't matter and isn't counted.
        """
        plenty = needed + growth <= self.pages.device.free
        return Pools(
            lanes=self.lanes.free,
            cells=self.pages.device.cells,
            committed=self.pages.in_lanes + growth,
            immovable=0 if plenty else self._immovable(source, now),
        )

    def cells_needed(self, source: Candidate | None, tokens: int) -> int:
        """Cells that a lane with `tokens` tokens takes beyond those other lanes hold already."""
        return self._opening.cells_needed(self._checkpoint(source), tokens)

    def open(self, source: Candidate | None, now: float) -> int | None:
        """Takes a lane and puts the source's state in it: its full pages shared, its tail copied, its image unpacked. None if memory for
        that can't be had; nothing was taken then.
        """
        return self._opening.open(self._checkpoint(source), now)

    def open_ahead(
        self,
        source: Candidate | None,
        tokens: int,
        images: int,
        continuation: ContinuationId,
        now: float,
    ) -> int | None:
        """Like `open`, with pages for all of `tokens` tokens, if room for them and for `images` images is free or can be had from what is
        worth less than the continuation without any loss. None, and nothing taken, if not.
        """
        rank = self._prospect(continuation, now)
        source_now = self._checkpoint(source)
        if not self._opening.room_ahead(source_now, tokens, images, rank, now):
            return None
        lane = self._opening.open(source_now, now)
        if lane is not None:
            self.reserve(lane, tokens, now)
        return lane

    def reserve(self, lane: int, tokens: int, now: float) -> bool:
        """Sees to pages for the lane's first `tokens` tokens. False if memory for that can't be had."""
        missing = ceil_div(tokens, self.pages.page_tokens) - len(self.lanes.pages[lane])
        if missing > 0:
            if not self.reclaim.device_room(missing, now):
                return False
            self.lanes.extend(lane, [self.pages.open() for _ in range(missing)])
        return True

    def close(self, lane: int) -> None:
        """Gives back the lane and its hold on pages."""
        self.pages.release_all_by_lane(self.lanes.pages[lane])
        self.lanes.pages[lane] = []
        self.lanes.give_back(lane)

    def save(
        self,
        lane: int,
        line: Line,
        position: int,
        continuation: ContinuationId,
        kind: AnchorKind,
        now: float,
        lossless: bool = False,
    ) -> CheckpointId | None:
        """A checkpoint of the lane, which has computed exactly `position` tokens of `line`, on the device if it's worth room
        there, else on the host, else none. An existing one of the same tokens gets the label instead. `lossless`: only if no
        other ceases to exist for it.
        """
        known = self.standing(line, position)
        if known is None or known.tier is Tier.DISK:
            known = self._save_new(lane, line, position, continuation, now, lossless) or known
        if known is None:
            return None
        return self.checkpoints.label(known, continuation, kind).checkpoint

    def park(
        self, lane: int, line: Line, position: int, continuation: ContinuationId, now: float
    ) -> CheckpointId | None:
        """Like `save`, but on the host only: what a preempted sequence has computed. None also if the continuation has it already."""
        known = self.standing(line, position)
        if known is None or known.tier is Tier.DISK:
            known = self._save_on_host(lane, line, position, continuation, now) or known
        if known is None or continuation in known.labels:
            return None
        return self.checkpoints.label(known, continuation, AnchorKind.LADDER).checkpoint

    def adopt(
        self, candidate: Candidate, continuation: ContinuationId, kind: AnchorKind
    ) -> CheckpointId:
        """Puts the continuation's label on what a look-up found just now, or renews it."""
        checkpoint = self.checkpoints.all[candidate.key]
        return self.checkpoints.label(checkpoint, continuation, kind).checkpoint

    def supersede(self, continuation: ContinuationId, name: CheckpointId) -> None:
        """Drops what a later state of the same sequence has made worthless."""
        self.reclaim.note_dropped(self.drop(continuation, (name,)), "superseded")

    def standing(self, line: Line, position: int) -> Checkpoint | None:
        """The checkpoint at exactly these tokens."""
        return self.checkpoints.standing(line.tenant, line.tokens, position)

    def drop(
        self, continuation: ContinuationId, names: tuple[CheckpointId, ...] | None
    ) -> tuple[CheckpointInfo, ...]:
        """Takes the continuation's labels (or the named ones) off; unknown names are ignored."""
        known = self.checkpoints.of.get(continuation, {})
        chosen = tuple(known) if names is None else tuple(name for name in names if name in known)
        return tuple(self.checkpoints.unlabel(known[name], continuation) for name in chosen)

    def info(self, continuation: ContinuationId, name: CheckpointId) -> CheckpointInfo | None:
        """None if it's gone."""
        checkpoint = self.checkpoints.of.get(continuation, {}).get(name)
        if checkpoint is None:
            return None
        return self.checkpoints.info(checkpoint, checkpoint.labels[continuation])

    def infos(
        self, continuation: ContinuationId, names: Iterable[CheckpointId]
    ) -> tuple[CheckpointInfo, ...]:
        """Those of them that still exist, by position."""
        found = (self.info(continuation, name) for name in names)
        return tuple(sorted((each for each in found if each), key=lambda each: each.position))

    def continuations(self) -> tuple[ContinuationInfo, ...]:
        return tuple(
            ContinuationInfo(
                continuation=continuation,
                tenant=next(iter(known.values())).tenant,
                checkpoints=tuple(
                    self.checkpoints.info(each, each.labels[continuation])
                    for each in known.values()
                ),
                bytes=self.checkpoints.bytes_of(known.values()),
            )
            for continuation, known in self.checkpoints.of.items()
        )

    def usage(self) -> tuple[TierUsage, ...]:
        arenas = (self.pages.device, self.pages.host)
        memory = (
            TierUsage(each.tier, each.used * each.cell_bytes, each.cells * each.cell_bytes)
            for each in arenas
        )
        return (*memory, *(() if self.disk is None else (self.disk.usage(),)))

    # --- the disk: all of these do nothing where there's none --------------------------------------

    def collect(self, now: float) -> None:
        """Takes in what the disk has done since: what was written, what has come to memory."""
        if self.disk is not None:
            self.disk.collect(now)

    def feed(self, now: float, busy: Set[ContinuationId]) -> None:
        """Lets the disk go on with what it can do beside steps; continuations in `busy` come last."""
        if self.disk is not None:
            self.disk.feed(now, busy)

    def is_on_disk(self, key: int) -> bool:
        """Whether the checkpoint is there, and nowhere nearer."""
        checkpoint = self.checkpoints.all.get(key)
        return checkpoint is not None and checkpoint.tier is Tier.DISK

    @property
    def is_restoring(self) -> bool:
        """Whether a checkpoint that is waited for is on its way from disk."""
        return self.disk is not None and self.disk.restores.is_awaited

    @property
    def is_reading(self) -> bool:
        """Whether any checkpoint is on its way from disk."""
        return self.disk is not None and self.disk.restores.incoming is not None

    def restore(self, key: int, now: float, hinted: bool = False) -> bool:
        """Starts to bring it from disk to memory, `hinted`: at a lower standing than all that is waited for. False if there's no room for it
        now, or another one is on its way.
        """
        assert self.disk is not None
        return self.disk.restores.begin(self.checkpoints.all[key], now, hinted)

    def was_bad(self, key: int) -> bool:
        """Whether the checkpoint is gone because its files were damaged."""
        return self.disk is not None and key in self.disk.bad

    def shut_down(self, clock: Callable[[], float], patience_s: float) -> None:
        """Writes to disk what isn't there yet, for so long."""
        if self.disk is not None:
            self.disk.close(clock, patience_s)

    def _checkpoint(self, source: Candidate | None) -> Checkpoint | None:
        return None if source is None else self.checkpoints.all[source.key]

    def _save_new(
        self,
        lane: int,
        line: Line,
        position: int,
        continuation: ContinuationId,
        now: float,
        lossless: bool,
    ) -> Checkpoint | None:
        self._share_pages(lane, line, position)
        rank, cells = self._prospect(continuation, now), self.checkpoints.image_cells
        if not self.reclaim.device_room(cells, now, below=rank, lossless=lossless):
            return self._save_on_host(lane, line, position, continuation, now, lossless)
        pages = self._pages_to(lane, position)
        return self.checkpoints.save(lane, line.tenant, line.tokens, position, pages)

    def _save_on_host(
        self,
        lane: int,
        line: Line,
        position: int,
        continuation: ContinuationId,
        now: float,
        lossless: bool = False,
    ) -> Checkpoint | None:
        pages, rank = self._pages_to(lane, position), self._prospect(continuation, now)
        if not self.reclaim.host_room(pages, rank, now, lossless=lossless):
            return None
        return self.checkpoints.save_on_host(lane, line.tenant, line.tokens, position, pages)

    def _pages_to(self, lane: int, position: int) -> tuple[Page, ...]:
        return tuple(self.lanes.pages[lane][: ceil_div(position, self.pages.page_tokens)])

    def _prospect(self, continuation: ContinuationId, now: float) -> Rank:
        """What a new label of this continuation would be worth."""
        newest = Label(CheckpointId(""), continuation, AnchorKind.TIP, sys.maxsize)
        return self.reclaim.worth(now).label(newest)

    def _share_pages(self, lane: int, line: Line, position: int) -> None:
        """Full pages that the lane computed although a checkpoint holds equal tokens become one with those."""
        full = position // self.pages.page_tokens
        for number, other in enumerate(self.index.shareable(line.tenant, line.tokens, full)):
            mine = self.lanes.pages[lane][number]
            if other is None or other is mine:
                continue
            if other.device_cell is not None:
                self.pages.hold_by_lane(other)
                self.pages.release_by_lane(mine)
            elif (mine.lanes, mine.device, mine.host) == (1, 0, 0):
                self.pages.hand_over_cell(mine, other)
            else:
                continue
            self.lanes.put(lane, number, other)

    def _immovable(self, source: Candidate | None, now: float) -> int:
        """Cells of pinned device checkpoints, beyond what lanes hold and the source needs anyway, that the host can't take and the disk
        doesn't have. O(pages of what is pinned).
        """
        ranking = self.reclaim.ranking.at(now)
        on_device, on_host = (
            [
                each
                for each in map(self.checkpoints.all.__getitem__, ranking.pinned(tier))
                if not each.on_disk
            ]
            for tier in (Tier.DEVICE, Tier.HOST)
        )
        if not on_device:
            return 0
        needed = (
            set()
            if source is None
            else set(self.checkpoints.full_pages(self.checkpoints.all[source.key]))
        )
        held = set(chain.from_iterable(each.pages for each in on_device)) - needed
        pages = [page for page in held if page.lanes == 0]
        cells = len(pages) + sum(len(each.image) for each in on_device)
        host_taken = self.checkpoints.bytes_of(on_host) // self.pages.host.cell_bytes
        return max(0, cells - (self.pages.host.cells - host_taken))
