"""Gives a lane to whoever goes on from a checkpoint: pages shared, tail copied, image unpacked. Doesn't know who that is."""

from engine.api import Tier
from engine.cache.checkpoints import Checkpoint, Checkpoints
from engine.cache.lanes import Lanes
from engine.cache.pages import Page, Pages
from engine.cache.reclaim import Reclaim
from engine.planner.memory import ceil_div
from engine.planner.residency import Rank


class Opening:
    """Mutates lanes and the holders of pages; `source` None is nothing computed yet."""

    def __init__(
        self, checkpoints: Checkpoints, pages: Pages, lanes: Lanes, reclaim: Reclaim
    ) -> None:
        self._checkpoints = checkpoints
        self._pages = pages
        self._lanes = lanes
        self._reclaim = reclaim

    def cells_needed(self, source: Checkpoint | None, tokens: int) -> int:
        """Cells that a lane with `tokens` tokens takes beyond those other lanes hold already."""
        shared = () if source is None else self._checkpoints.full_pages(source)
        return ceil_div(tokens, self._pages.page_tokens) - sum(page.lanes > 0 for page in shared)

    def room_ahead(
        self, source: Checkpoint | None, tokens: int, images: int, rank: Rank, now: float
    ) -> bool:
        """Sees to free cells for a lane with `tokens` tokens and for `images` images, at the cost of what is worth less than `rank` and has
        a place elsewhere. What leaves may take pages of the source with it, so the need is reckoned anew each time.
        """
        while (cells := self._cells_ahead(source, tokens, images)) > self._pages.device.free:
            if not self._reclaim.device_room(cells, now, source, rank, lossless=True):
                return False
        return True

    def open(self, source: Checkpoint | None, now: float) -> int | None:
        """Takes a lane and puts the source's state in it. None if memory for that can't be had; nothing was taken then, nor if it raises."""
        lane = self._lanes.take()
        if source is None:
            return lane
        # All that the source alone keeps is read first, so that on a full device even the source itself may make room.
        has_tail = source.position % self._pages.page_tokens > 0
        held: list[Page] = []
        try:
            self._checkpoints.unpack(source, lane)
            tail = self._pages.contents(source.pages[-1]) if has_tail else None
            if not self._hold_full_pages(source, held, int(has_tail), now):
                self._lanes.give_back(lane)
                return None
            if tail is not None:
                held.append(self._pages.open_with(tail))
        except Exception:
            self._pages.release_all_by_lane(held)
            self._lanes.give_back(lane)
            raise
        self._lanes.extend(lane, held)
        return lane

    def _cells_ahead(self, source: Checkpoint | None, tokens: int, images: int) -> int:
        """Free device cells that are taken as things stand."""
        shared = () if source is None else self._checkpoints.full_pages(source)
        present = sum(page.device_cell is not None for page in shared)
        pages = ceil_div(tokens, self._pages.page_tokens)
        return pages - present + images * self._checkpoints.image_cells

    def _hold_full_pages(
        self, source: Checkpoint, held: list[Page], extra: int, now: float
    ) -> bool:
        """Puts the source's full pages in `held`, on the device and held by one lane more, and sees to room for `extra` cells. Without room
        nothing is held.
        """
        pages = self._checkpoints.full_pages(source)
        absent = [page for page in pages if page.device_cell is None]
        held += [page for page in pages if page.device_cell is not None]
        for page in held:
            self._pages.hold_by_lane(page)
        spare = source if source.tier is Tier.HOST else None
        if not self._reclaim.device_room(len(absent) + extra, now, spare):
            self._pages.release_all_by_lane(held)
            return False
        self._pages.bring_to_device(absent)
        for page in absent:
            self._pages.hold_by_lane(page)
        held[:] = pages
        return True
