"""Brings state nearer on a hint: from disk to the host, from the host to a device with room to spare. Knows no requests.

Nothing waits for it and nothing is lost for it: it begins only when nothing else is to come from disk, and what it brings leaves
again for whoever needs the room. The soonest wanted goes first, of each continuation the newest checkpoint.
"""

import logging
from dataclasses import dataclass

from engine.api import ContinuationId, Tier
from engine.cache.checkpoints import Checkpoint, Checkpoints
from engine.cache.disk import Disk
from engine.cache.reclaim import Reclaim
from engine.planner.residency import EXPENDABLE

log = logging.getLogger(__name__)

MOST_HINTS = 64
"""Continuations; beyond that the oldest hints are forgotten."""
TRIES = 2
"""How often one checkpoint is begun at most: what had to give way twice isn't wanted that much."""


@dataclass(slots=True)
class PrefetchCounters:
    """Checkpoints: to be brought from disk, those for which there was no room or which gave way too often, moved to the device; hints that
    were forgotten.
    """

    prefetches_begun: int = 0
    prefetches_given_up: int = 0
    prefetched_to_device: int = 0
    hints_forgotten: int = 0


class Prefetch:
    """`disk` None: there's none."""

    def __init__(self, checkpoints: Checkpoints, reclaim: Reclaim, disk: Disk | None) -> None:
        self._checkpoints = checkpoints
        self._reclaim = reclaim
        self._disk = disk
        self._on_disk: dict[ContinuationId, None] = {}
        self._in_memory: dict[ContinuationId, None] = {}
        self._tries: dict[int, int] = {}
        self.counters = PrefetchCounters()

    def hint(self, continuations: tuple[ContinuationId, ...]) -> None:
        for each in continuations:
            self._on_disk.setdefault(each)
        self._keep_limit(self._on_disk)

    def forget(self) -> None:
        """All hints."""
        self.counters.hints_forgotten += len(self._on_disk)
        self._on_disk.clear()
        self._tries.clear()

    @property
    def has_work(self) -> bool:
        """Whether there's something to be moved as soon as the engine has nothing else to do."""
        return bool(self._in_memory)

    def feed(self, now: float) -> None:
        """Has the next checkpoint brought from disk, unless something else is."""
        while self._on_disk and not self._is_busy():
            continuation = next(iter(self._on_disk))
            if not self._begin_one(continuation, now):
                del self._on_disk[continuation]
                self._tries.clear()
                self._in_memory.setdefault(continuation)
                self._keep_limit(self._in_memory)

    def promote_one(self) -> None:
        """Moves what is hinted at from the host to the device, one checkpoint at most, if there's free room for it."""
        while self._in_memory:
            continuation = next(iter(self._in_memory))
            del self._in_memory[continuation]
            newest = next(iter(self._newest_first(continuation)), None)
            if newest is not None and self._promote(newest):
                return

    def _keep_limit(self, hints: dict[ContinuationId, None]) -> None:
        while len(hints) > MOST_HINTS:
            del hints[next(iter(hints))]
            self.counters.hints_forgotten += 1

    def _is_busy(self) -> bool:
        waited_for = bool(self._reclaim.awaited)
        return waited_for or (self._disk is not None and self._disk.restores.incoming is not None)

    def _newest_first(self, continuation: ContinuationId) -> list[Checkpoint]:
        known = self._checkpoints.of.get(continuation, {})
        return sorted(known.values(), key=lambda e: e.labels[continuation].serial, reverse=True)

    def _begin_one(self, continuation: ContinuationId, now: float) -> bool:
        """False if nothing more of it is to be brought."""
        ranking = self._reclaim.ranking.at(now)
        for each in self._newest_first(continuation):
            if each.tier is not Tier.DISK or ranking.rank(each.key)[0] == EXPENDABLE:
                continue
            tries = self._tries.get(each.key, 0)
            if tries == TRIES:
                continue
            assert self._disk is not None
            if self._disk.restores.begin(each, now, hinted=True):
                self._tries[each.key] = tries + 1
                self.counters.prefetches_begun += tries == 0
                return True
            self._tries[each.key] = TRIES
            self.counters.prefetches_given_up += 1
        return False

    def _promote(self, checkpoint: Checkpoint) -> bool:
        if checkpoint.tier is not Tier.HOST or not self._checkpoints.fits_on_device(checkpoint):
            return False
        try:
            self._checkpoints.promote(checkpoint)
        except Exception:
            log.exception("a checkpoint could not be copied to the device")
            self.counters.prefetches_given_up += 1
            return False
        self.counters.prefetched_to_device += 1
        return True
