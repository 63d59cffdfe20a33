"""Places of running sequences and the page tables in them. Doesn't know whose they are."""

import torch

from engine.cache.pages import Page


class Lanes:
    """`tables` [lanes, pages of a full context] int64 on the CPU are device cells by page number; entries past a lane's pages
    are stale and never read.
    """

    def __init__(self, count: int, max_pages: int) -> None:
        self.count = count
        self.tables = torch.zeros((count, max_pages), dtype=torch.int64)
        self.pages: list[list[Page]] = [[] for _ in range(count)]
        self._free = list(range(count - 1, -1, -1))
        self._first = self.tables.data_ptr()
        self._stride = self.tables.stride(0) * self.tables.itemsize

    @property
    def free(self) -> int:
        return len(self._free)

    def free_lanes(self) -> tuple[int, ...]:
        return tuple(self._free)

    def take(self) -> int:
        assert self._free
        return self._free.pop()

    def give_back(self, lane: int) -> None:
        assert not self.pages[lane]
        self._free.append(lane)

    def extend(self, lane: int, pages: list[Page]) -> None:
        first = len(self.pages[lane])
        self.pages[lane].extend(pages)
        cells = torch.tensor([page.device_cell for page in pages], dtype=torch.int64)
        self.tables[lane, first : first + len(pages)] = cells

    def put(self, lane: int, number: int, page: Page) -> None:
        assert page.device_cell is not None
        self.pages[lane][number] = page
        self.tables[lane, number] = page.device_cell

    def table(self, lane: int) -> torch.Tensor:
        """[pages of the lane] int64, a view."""
        return self.tables[lane, : len(self.pages[lane])]

    def address(self, lane: int) -> int:
        """Of the lane's table in memory, the same at all times."""
        return self._first + lane * self._stride

    def cell(self, lane: int, number: int) -> int:
        """The device cell of the lane's page of that number."""
        cell = self.pages[lane][number].device_cell
        assert cell is not None
        return cell
