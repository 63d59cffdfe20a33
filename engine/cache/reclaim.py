"""Makes room: demotes device checkpoints to the host, and leaves to the disk or drops what the host can't keep. The order comes
from planner.residency; what the disk has was written earlier, nothing is ever waited for here.
"""

import logging
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from itertools import islice

from engine.api import CheckpointInfo, ContinuationId, Dropped, Retention, Tier
from engine.cache.checkpoints import Checkpoint, Checkpoints
from engine.cache.pages import Page, Pages
from engine.cache.ranking import Ranking
from engine.planner.residency import PINNED, Held, Rank, Worth, choose_victims, leaving_memory

log = logging.getLogger(__name__)

LEAVING_GROUPS = ((False, False), (True, False), (True, True))
"""How leaving_memory sorts before it looks at ranks: the expendable, what the disk keeps, what will be lost."""


@dataclass(slots=True)
class Moves:
    """What happened so far, counted in checkpoints; `not_demoted` are those whose copy failed."""

    demoted: int = 0
    not_demoted: int = 0
    left_to_disk: int = 0
    dropped: int = 0


class Reclaim:
    """`retentions` are those told so far, a view of `ranking`; `take_dropped` hands out what ceased to exist since. `awaited` are keys of checkpoints that a
    waiting request is about to use: they stay in memory if anything else can go. `give_way` asks what is on its way to a
    tier of memory, and can wait, to leave the room that it took; False if there's nothing.
    """

    def __init__(self, pages: Pages, checkpoints: Checkpoints, ranking: Ranking) -> None:
        self._pages = pages
        self._checkpoints = checkpoints
        self.ranking = ranking
        self.retentions: MutableMapping[ContinuationId, Retention] = ranking
        self.moves = Moves()
        self.awaited: frozenset[int] = frozenset()
        self.give_way: Callable[[Tier], bool] = lambda _: False
        self._dropped: list[Dropped] = []

    def worth(self, now: float) -> Worth:
        return Worth(self.retentions, now)

    def take_dropped(self) -> list[Dropped]:
        """What ceased to exist since the last call, and why."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def note_dropped(self, infos: tuple[CheckpointInfo, ...], reason: str) -> None:
        if infos:
            self._dropped.append(Dropped(infos, reason))

    def device_room(
        self,
        cells: int,
        now: float,
        spare: Checkpoint | None = None,
        below: Rank | None = None,
        lossless: bool = False,
    ) -> bool:
        """Sees to `cells` free device cells. `spare` stays where it is, and so does all that is not worth less than `below`;
        `lossless`: what leaves must have a place elsewhere. False if that can't be done; nothing was moved then unless what
        had to go proved immovable on the way.
        """
        if self._send_device_victims(cells, now, spare, below, lossless):
            return True
        if lossless or not self.give_way(Tier.DEVICE):
            return False
        return self._send_device_victims(cells, now, spare, below, lossless)

    def _send_device_victims(
        self,
        cells: int,
        now: float,
        spare: Checkpoint | None,
        below: Rank | None,
        lossless: bool,
    ) -> bool:
        short = cells - self._pages.device.free
        if short <= 0:
            return True
        self.ranking.at(now)
        held = (Held(len(each.image), each.pages) for _, each in self._leaving_device(spare, below))
        if choose_victims(held, lambda page: page.lanes + page.device, short) is None:
            return False
        for rank, checkpoint in self._leaving_device(spare, below):
            if self._pages.device.free >= cells:
                break
            self._send_away(checkpoint, rank, now, spare, lossless)
        return self._pages.device.free >= cells

    def host_room(
        self,
        pages: tuple[Page, ...],
        rank: Rank,
        now: float,
        spare: Checkpoint | None = None,
        lossless: bool = False,
    ) -> bool:
        """Sees to room on the host for a checkpoint of `pages` worth `rank`, by sending away what is worth less; if `lossless`, only what
        the disk keeps. All or nothing.
        """
        if self._send_host_victims(pages, rank, now, spare, lossless):
            return True
        if lossless or not self.give_way(Tier.HOST):
            return False
        return self._send_host_victims(pages, rank, now, spare, lossless)

    def _send_host_victims(
        self,
        pages: tuple[Page, ...],
        rank: Rank,
        now: float,
        spare: Checkpoint | None,
        lossless: bool,
    ) -> bool:
        short = self._checkpoints.host_cells_missing(pages) - self._pages.host.free
        if short <= 0:
            return True
        self.ranking.at(now)
        ours = set(pages)
        held = (
            Held(len(each.image), [page for page in each.pages if page not in ours])
            for each in self._leaving_host(spare, rank, lossless)
        )
        count = choose_victims(held, lambda page: page.host, short)
        if count is None:
            return False
        for victim in list(islice(self._leaving_host(spare, rank, lossless), count)):
            self._leave(victim)
        return self._checkpoints.host_cells_missing(ours) <= self._pages.host.free

    def _send_away(
        self,
        victim: Checkpoint,
        rank: Rank,
        now: float,
        spare: Checkpoint | None,
        lossless: bool,
    ) -> None:
        if self.host_room(victim.pages, rank, now, spare, lossless) and self._demote(victim):
            self.moves.demoted += 1
        elif victim.on_disk or not (lossless or rank[0] == PINNED):
            self._leave(victim)

    def _demote(self, victim: Checkpoint) -> bool:
        """A copy that fails is like a host without room: it mustn't fail whoever needs the device."""
        try:
            self._checkpoints.demote(victim)
        except Exception:
            log.exception("a checkpoint could not be copied to the host")
            self.moves.not_demoted += 1
            return False
        return True

    def _leave(self, victim: Checkpoint) -> None:
        """Out of memory: what the disk has whole stays there, the rest is lost."""
        if victim.on_disk:
            self._checkpoints.settle_on_disk(victim)
            self.moves.left_to_disk += 1
        else:
            self.drop(victim, "memory")

    def drop(self, victim: Checkpoint, reason: str) -> None:
        """It ceases to exist in every tier."""
        self.note_dropped(self._checkpoints.drop(victim), reason)
        self.moves.dropped += 1

    def _leaving_device(
        self, spare: Checkpoint | None, below: Rank | None
    ) -> Iterator[tuple[Rank, Checkpoint]]:
        """Who leaves the device, in order; what is awaited last of all."""
        late: list[tuple[Rank, Checkpoint]] = []
        for rank, each in self._ranked(Tier.DEVICE, spare, below):
            if each.key in self.awaited:
                late.append((rank, each))
            else:
                yield rank, each
        yield from late

    def _leaving_host(
        self, spare: Checkpoint | None, below: Rank, lossless: bool
    ) -> Iterator[Checkpoint]:
        """Who may leave the host for something worth `below`, in the order of planner.residency.leaving_memory."""
        for group in LEAVING_GROUPS:
            for rank, each in self._ranked(Tier.HOST, spare, below):
                keeps = lossless or rank[0] == PINNED
                if each.key in self.awaited or (keeps and not each.on_disk):
                    continue
                if leaving_memory(rank, each.on_disk)[:2] == group:
                    yield each

    def _ranked(
        self, tier: Tier, spare: Checkpoint | None, below: Rank | None
    ) -> Iterator[tuple[Rank, Checkpoint]]:
        """What is in a tier when this begins, by ascending worth; what it's worth may have it end before `below`."""
        for rank, key in self.ranking.order(tier):
            if below is not None and rank >= below:
                return
            checkpoint = self._checkpoints.all[key]
            if checkpoint is not spare:
                yield rank, checkpoint
