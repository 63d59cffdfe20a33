"""KV pages and where their bytes are. Knows who counts on a page, not which tokens it holds.

Who may write: a page has exactly one writer, the lane that opened it, and it is written front to back only. Whoever
counts on the page's first n tokens may therefore share it with its writer: those n never change again. A lane that goes on
from a checkpoint in mid-page opens a page of its own and copies the tail's tokens into it (copy on write), so no page ever
gets a second writer.

    tokens    0 ─────────── 40 ─────── 64
    page      ████████████████░░░░░░░░░░      writer: lane 2, which is at token 40
    counted   └ checkpoint A: first 17 ┘      A and B stay true while lane 2 goes on
              └ checkpoint B: first 40 ──┘
"""

from collections.abc import Iterable, Sequence

import torch

from engine.cache.arena import Arena


class Page:
    """`lanes`, `device` and `host` count the lanes, device checkpoints and host checkpoints that hold it. It has a device cell
    exactly while lanes + device > 0 and a host cell exactly while host > 0; `host_tokens` of the latter are valid.
    """

    __slots__ = ("device", "device_cell", "host", "host_cell", "host_tokens", "lanes")

    def __init__(self, device_cell: int | None = None) -> None:
        self.device_cell = device_cell
        self.host_cell: int | None = None
        self.host_tokens = 0
        self.lanes = 0
        self.device = 0
        self.host = 0

    @property
    def alive(self) -> bool:
        return self.lanes + self.device + self.host > 0


class Pages:
    """Moves pages between the two arenas and counts their holders. Callers make room first. A page without any cell is one whose
    contents are on their way from disk.
    """

    def __init__(self, device: Arena, host: Arena, page_tokens: int) -> None:
        self.device = device
        self.host = host
        self.page_tokens = page_tokens
        self.in_lanes = 0

    def open(self) -> Page:
        """A fresh page, held by one lane, its writer."""
        (cell,) = self.device.allocate(1)
        page = Page(cell)
        self.hold_by_lane(page)
        return page

    def is_whole(self, page: Page) -> bool:
        """Whether all tokens of a page that was filled once are in memory: its host copy may be older than that."""
        return page.device_cell is not None or page.host_tokens == self.page_tokens

    def contents(self, page: Page) -> torch.Tensor:
        """A copy [1, words] of its bytes, from wherever they are."""
        if page.device_cell is not None:
            return self.device.read([page.device_cell])
        assert page.host_cell is not None
        return self.host.read([page.host_cell])

    def open_with(self, contents: torch.Tensor) -> Page:
        """A fresh page held by one lane, beginning with what `contents` returned."""
        with self.device.taken(1) as (cell,):
            self.device.write([cell], contents)
        page = Page(cell)
        self.hold_by_lane(page)
        return page

    def hold_to_fill(self, page: Page, arena: Arena, tokens: int) -> int:
        """Gives an empty page a cell of `arena`, held by one checkpoint there, who fills its `tokens`. Returns the cell."""
        assert not page.alive
        (cell,) = arena.allocate(1)
        if arena is self.host:
            page.host_cell, page.host_tokens, page.host = cell, tokens, 1
        else:
            page.device_cell, page.device = cell, 1
        return cell

    def hold_by_lane(self, page: Page) -> None:
        assert page.device_cell is not None
        self.in_lanes += page.lanes == 0
        page.lanes += 1

    def release_by_lane(self, page: Page) -> None:
        page.lanes -= 1
        self.in_lanes -= page.lanes == 0
        self._leave_device(page)

    def release_all_by_lane(self, pages: Iterable[Page]) -> None:
        for page in pages:
            self.release_by_lane(page)

    def hold_on_device(self, pages: Iterable[Page]) -> None:
        for page in pages:
            assert page.device_cell is not None
            page.device += 1

    def release_on_device(self, pages: Iterable[Page]) -> None:
        for page in pages:
            page.device -= 1
            self._leave_device(page)

    def release_on_host(self, pages: Iterable[Page]) -> None:
        for page in pages:
            page.host -= 1
            if page.host == 0 and page.host_cell is not None:
                self.host.release([page.host_cell])
                page.host_cell, page.host_tokens = None, 0

    def host_cells_missing(self, pages: Iterable[Page]) -> int:
        """Host cells that `hold_on_host` of these would take."""
        return sum(page.host_cell is None for page in pages)

    def hold_on_host(self, pages: Sequence[Page], last_tokens: int) -> None:
        """Copies what the host lacks: of all pages every token, of the last one the first `last_tokens`. A copy that fails leaves no
        trace.
        """
        short = [
            (page, needed)
            for page in pages
            if page.host_tokens < (needed := last_tokens if page is pages[-1] else self.page_tokens)
        ]
        fresh = [page for page, _ in short if page.host_cell is None]
        with self.host.taken(len(fresh)) as cells:
            places = dict(zip(fresh, cells, strict=True))
            places |= {page: page.host_cell for page, _ in short if page.host_cell is not None}
            sources = [_cell(page.device_cell) for page, _ in short]
            self.host.copy([places[page] for page, _ in short], self.device, sources)
        for page, needed in short:
            page.host_cell, page.host_tokens = places[page], needed
        for page in pages:
            page.host += 1

    def bring_to_device(self, pages: Sequence[Page]) -> None:
        """Copies those full pages that have no device cell; the caller holds them at once. A copy that fails leaves no trace."""
        missing = [page for page in pages if page.device_cell is None]
        assert all(page.host_tokens == self.page_tokens for page in missing)
        with self.device.taken(len(missing)) as cells:
            self.device.copy(cells, self.host, [_cell(page.host_cell) for page in missing])
        for page, cell in zip(missing, cells, strict=True):
            page.device_cell = cell

    def hand_over_cell(self, mine: Page, other: Page) -> None:
        """`other`, equal in tokens but without device bytes, takes over the bytes of `mine`, which one lane alone holds."""
        assert (mine.lanes, mine.device, mine.host) == (1, 0, 0)
        assert other.device_cell is None
        other.device_cell, mine.device_cell = mine.device_cell, None
        mine.lanes -= 1
        other.lanes += 1

    def _leave_device(self, page: Page) -> None:
        if page.lanes + page.device == 0 and page.device_cell is not None:
            self.device.release([page.device_cell])
            page.device_cell = None


def _cell(cell: int | None) -> int:
    assert cell is not None
    return cell
