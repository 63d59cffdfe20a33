"""Makes room: demotes device checkpoints to the host and drops what the host can't keep. The order comes from planner.residency."""

from collections.abc import MutableMapping
from dataclasses import dataclass

from engine.api import CheckpointInfo, ContinuationId, Dropped, Retention, Tier
from engine.cache.checkpoints import Checkpoint, Checkpoints
from engine.cache.pages import Page, Pages
from engine.planner.residency import PINNED, Held, Rank, Worth, choose_victims


@dataclass(slots=True)
class Moves:
    """What happened so far, counted in checkpoints."""

    demoted: int = 0
    dropped: int = 0


class Reclaim:
    """Holds the retentions told so far; `take_dropped` hands out what ceased to exist since."""

    def __init__(self, pages: Pages, checkpoints: Checkpoints) -> None:
        self._pages = pages
        self._checkpoints = checkpoints
        self.retentions: MutableMapping[ContinuationId, Retention] = {}
        self.moves = Moves()
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
        if self._pages.device.free >= cells:
            return True
        worth = self.worth(now)
        order = self._order(Tier.DEVICE, worth, spare, below)
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
        """Sees to room on the host for a checkpoint of `pages` worth `rank`, by dropping what is worth less. All or nothing."""
        short = self._checkpoints.host_cells_missing(pages) - self._pages.host.free
        if short <= 0:
            return True
        ours = set(pages)
        order = [
            each
            for each_rank, each in self._order(Tier.HOST, worth, spare, rank)
            if each_rank[0] != PINNED
        ]
        held = [
            Held(len(each.image), [page for page in each.pages if page not in ours])
            for each in order
        ]
        count = choose_victims(held, lambda page: page.host, short)
        if count is None:
            return False
        for victim in order[:count]:
            self._drop(victim)
        return self._checkpoints.host_cells_missing(ours) <= self._pages.host.free

    def _send_away(
        self, victim: Checkpoint, rank: Rank, worth: Worth, spare: Checkpoint | None
    ) -> None:
        if self.host_room(victim.pages, rank, worth, spare):
            self._checkpoints.demote(victim)
            self.moves.demoted += 1
        elif rank[0] != PINNED:
            self._drop(victim)

    def _drop(self, victim: Checkpoint) -> None:
        self.note_dropped(self._checkpoints.drop(victim), "memory")
        self.moves.dropped += 1

    def _order(
        self, tier: Tier, worth: Worth, spare: Checkpoint | None, below: Rank | None
    ) -> list[tuple[Rank, Checkpoint]]:
        ranked = [
            (worth.checkpoint(each.labels.values()), each)
            for each in self._checkpoints.on_tier(tier)
            if each is not spare
        ]
        if below is not None:
            ranked = [pair for pair in ranked if pair[0] < below]
        return sorted(ranked, key=lambda pair: (pair[0], pair[1].key))
