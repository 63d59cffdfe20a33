"""Makes room: demotes device checkpoints to the host, and leaves to the disk or drops what the host can't keep. The order comes
from planner.residency; what the disk has was written earlier, nothing is ever waited for here.
"""

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass

from engine.api import CheckpointInfo, ContinuationId, Dropped, Retention, Tier
from engine.cache.checkpoints import Checkpoint, Checkpoints
from engine.cache.pages import Page, Pages
from engine.planner.residency import PINNED, Held, Rank, Worth, choose_victims, leaving_memory


@dataclass(slots=True)
class Moves:
    """What happened so far, counted in checkpoints."""

    demoted: int = 0
    left_to_disk: int = 0
    dropped: int = 0


class Reclaim:
    """Holds the retentions told so far; `take_dropped` hands out what ceased to exist since. `awaited` are keys of checkpoints that a
    waiting request is about to use: they stay in memory if anything else can go. `give_way` asks whatever is on its way to the
    device to leave the room that it took; False if there's nothing.
    """

    def __init__(self, pages: Pages, checkpoints: Checkpoints) -> None:
        self._pages = pages
        self._checkpoints = checkpoints
        self.retentions: MutableMapping[ContinuationId, Retention] = {}
        self.moves = Moves()
        self.awaited: frozenset[int] = frozenset()
        self.give_way: Callable[[], bool] = lambda: False
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
        self, cells: int, now: float, spare: Checkpoint | None = None, below: Rank | None = None
    ) -> bool:
        """Sees to `cells` free device cells. `spare` stays where it is, and so does all that is not worth less than `below`.
        False if that can't be done; nothing was moved then unless pins proved immovable on the way.
        """
        if self._send_device_victims(cells, now, spare, below):
            return True
        return self.give_way() and self._send_device_victims(cells, now, spare, below)

    def _send_device_victims(
        self, cells: int, now: float, spare: Checkpoint | None, below: Rank | None
    ) -> bool:
        if self._pages.device.free >= cells:
            return True
        worth = self.worth(now)
        order = self._ranked(Tier.DEVICE, worth, spare, below)
        order.sort(key=lambda pair: (pair[1].key in self.awaited, pair[0], pair[1].key))
        held = [Held(len(each.image), each.pages) for _, each in order]
        short = cells - self._pages.device.free
        if choose_victims(held, lambda page: page.lanes + page.device, short) is None:
            return False
        for rank, checkpoint in order:
            if self._pages.device.free >= cells:
                break
            self._send_away(checkpoint, rank, worth, spare)
        return self._pages.device.free >= cells

    def host_room(
        self,
        pages: tuple[Page, ...],
        rank: Rank,
        worth: Worth,
        spare: Checkpoint | None = None,
    ) -> bool:
        """Sees to room on the host for a checkpoint of `pages` worth `rank`, by sending away what is worth less. All or nothing."""
        short = self._checkpoints.host_cells_missing(pages) - self._pages.host.free
        if short <= 0:
            return True
        ours = set(pages)
        order = self._leaving_host(worth, spare, rank)
        held = [
            Held(len(each.image), [page for page in each.pages if page not in ours])
            for each in order
        ]
        count = choose_victims(held, lambda page: page.host, short)
        if count is None:
            return False
        for victim in order[:count]:
            self._leave(victim)
        return self._checkpoints.host_cells_missing(ours) <= self._pages.host.free

    def _send_away(
        self, victim: Checkpoint, rank: Rank, worth: Worth, spare: Checkpoint | None
    ) -> None:
        if self.host_room(victim.pages, rank, worth, spare):
            self._checkpoints.demote(victim)
            self.moves.demoted += 1
        elif victim.on_disk or rank[0] != PINNED:
            self._leave(victim)

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

    def _leaving_host(
        self, worth: Worth, spare: Checkpoint | None, below: Rank
    ) -> list[Checkpoint]:
        """Who may leave the host for something worth `below`, in order."""
        leaving = [
            (leaving_memory(rank, each.on_disk), each.key, each)
            for rank, each in self._ranked(Tier.HOST, worth, spare, below)
            if each.key not in self.awaited and (each.on_disk or rank[0] != PINNED)
        ]
        return [each for _, _, each in sorted(leaving, key=lambda entry: entry[:2])]

    def _ranked(
        self, tier: Tier, worth: Worth, spare: Checkpoint | None, below: Rank | None
    ) -> list[tuple[Rank, Checkpoint]]:
        ranked = [
            (worth.checkpoint(each.labels.values()), each)
            for each in self._checkpoints.on_tier(tier)
            if each is not spare
        ]
        return ranked if below is None else [pair for pair in ranked if pair[0] < below]
