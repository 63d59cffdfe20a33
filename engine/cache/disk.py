"""The disk tier as the cache sees it: opened and found again, written behind, restored from, lost. Owns the order of these.

Whatever the disk does, the engine goes on: a disk that fails is left alone for a while, one that vanished is forgotten and
looked for again.
"""

import time
from collections.abc import Callable, Set
from dataclasses import asdict

from engine.api import ContinuationId, Tier, TierUsage
from engine.cache.checkpoints import Checkpoint, Checkpoints
from engine.cache.disk_files import Kind
from engine.cache.disk_survey import Found, Survey, survey
from engine.cache.disk_tier import DiskTier, Unreadable, Vanished
from engine.cache.pages import Pages
from engine.cache.reclaim import Reclaim
from engine.cache.restore import Restores
from engine.cache.write_behind import WriteBehind

LOCK_PATIENCE_S = 10.0
"""An engine that lost its client may still be ending when the next one starts."""
OPEN_PATIENCE_S = 60.0


class Disk:
    """`bad` are keys of checkpoints whose files proved to be damaged."""

    def __init__(
        self, tier: DiskTier, checkpoints: Checkpoints, pages: Pages, reclaim: Reclaim
    ) -> None:
        self.tier = tier
        self.bad: set[int] = set()
        self._checkpoints = checkpoints
        self._reclaim = reclaim
        self._opening = False
        self._write_behind = WriteBehind(tier, checkpoints, pages, reclaim)
        self.restores = Restores(tier, checkpoints, pages, reclaim, self._lose_file)
        reclaim.give_way = self.restores.give_way
        tier.on_vanished = self._lose_all

    def start(self, now: float) -> None:
        """Finds again what is there. If that takes too long it goes on beside the engine's work."""
        self.open(LOCK_PATIENCE_S)
        self.tier.worker.wait(OPEN_PATIENCE_S)
        self.tier.collect(now)

    def open(self, patience_s: float = 0.0) -> None:
        """Has the directory made ready and read; what it holds is there once that is done and collected."""
        files, shape = self.tier.files, self.tier.shape

        def work() -> Survey:
            set_aside = files.open(patience_s)
            there = survey(files, shape)
            return Survey(there.found, there.set_aside + set_aside)

        def then(outcome: Survey | Exception) -> None:
            self._opening = False
            if isinstance(outcome, Exception):
                self.tier.suspend(outcome)
            else:
                self._find_again(outcome)

        self._opening = True
        # Behind all that was asked for before: what is found afterwards stays as it is.
        self.tier.worker.submit(work, then)

    def collect(self, now: float) -> None:
        """Takes in what the worker has done since. A disk that hangs counts as vanished until it answers."""
        self.tier.collect(now)
        if self.restores.is_stalled(now):
            self.tier.suspend(Vanished("it does not answer"))

    def feed(self, now: float, busy: Set[ContinuationId]) -> bool:
        """Gives the worker something to do. False if nothing is left to be written, or nothing can be."""
        if not self.tier.opened and not self._opening and now >= self.tier.retry_at:
            self.open()
        return self._write_behind.feed(now, busy)

    def close(self, clock: Callable[[], float], patience_s: float) -> None:
        """Writes what is not on disk yet, for so long, and gives the directory back."""
        deadline = time.monotonic() + patience_s
        while self.feed(clock(), frozenset()) and time.monotonic() < deadline:
            self.tier.worker.wait(max(0.0, deadline - time.monotonic()))
            self.collect(clock())
        self.tier.worker.close(max(0.0, deadline - time.monotonic()))
        self.tier.files.close()

    def usage(self) -> TierUsage:
        return self.tier.usage()

    def counted(self) -> dict[str, int]:
        return asdict(self.tier.counters)

    def _find_again(self, there: Survey) -> None:
        self.tier.opened = True
        self.tier.recover()
        self.tier.counters.disk_files_set_aside += there.set_aside
        for found in sorted(there.found, key=lambda each: min(e.serial for e in each.labels)):
            self._adopt(found)
        self._write_behind.keep_limit(self.tier.now)

    def _adopt(self, found: Found) -> None:
        for stored in found.labels:
            known = self._reclaim.retentions.get(stored.retention.continuation)
            if known is None or known.used_at < stored.used_at:
                self._reclaim.retentions[stored.retention.continuation] = stored.retention
        copy = self.tier.enter_found(found)
        labels = [stored.label for stored in found.labels]
        self._checkpoints.find_again(found.tenant, found.line, labels, copy)

    def _lose_file(self, checkpoint: Checkpoint, error: Exception) -> None:
        """A checkpoint could not be read; if a page is to blame, so can't all others that hold it."""
        lost = [checkpoint] if checkpoint.key in self._checkpoints.all else []
        if isinstance(error, Unreadable) and error.file.kind is Kind.PAGE:
            page = self.tier.pages.get(error.file.name)
            every = self._checkpoints.all.values()
            lost = [each for each in every if each.copy is not None and page in each.copy.pages]
        for each in lost:
            if each.tier is not Tier.DISK:
                self._checkpoints.give_up_copy(each)
            else:
                self.bad.add(each.key)
                self._reclaim.drop(each, "damaged")

    def _lose_all(self) -> None:
        self.restores.give_up()
        self.tier.forget_all()
        for each in [each for each in self._checkpoints.all.values() if each.copy is not None]:
            if each.tier is Tier.DISK:
                self.bad.add(each.key)
                self._reclaim.drop(each, "disk lost")
            else:
                self._checkpoints.give_up_copy(each)
