"""Flows of least cost through arcs that all lead forward. Knows graphs, not what they stand for."""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

UNREACHED = float("inf")


@dataclass(frozen=True, slots=True)
class Arc:
    """From node `tail` to a higher node `head`. Costs are whole numbers and may be negative."""

    tail: int
    head: int
    capacity: int
    cost: int


def cheapest(arcs: Sequence[Arc], nodes: int, units: int) -> list[int]:
    """The flow on each arc when `units` go from node 0 to the last one, each over the cheapest way left; they must find one.

    Successive shortest paths. Potentials keep all costs that are left at zero or more, so each path is one Dijkstra search.
    """
    graph = _Residual(arcs, nodes)
    left = units
    while left > 0 and nodes > 1:
        pushed = graph.augment(left)
        assert pushed > 0, "each begin can be passed by all units"
        left -= pushed
    return graph.flows()


class _Residual:
    """Mutable. Arc i is edge 2i, what it carries can be taken back over edge 2i + 1."""

    def __init__(self, arcs: Sequence[Arc], nodes: int) -> None:
        self._heads = [end for arc in arcs for end in (arc.head, arc.tail)]
        self._costs = [cost for arc in arcs for cost in (arc.cost, -arc.cost)]
        self._room = [room for arc in arcs for room in (arc.capacity, 0)]
        self._edges: list[list[int]] = [[] for _ in range(nodes)]
        for index, arc in enumerate(arcs):
            self._edges[arc.tail].append(2 * index)
            self._edges[arc.head].append(2 * index + 1)
        self._potential = self._first_potential()

    def flows(self) -> list[int]:
        return self._room[1::2]

    def augment(self, most: int) -> int:
        """Pushes as many units as fit over the cheapest way; returns how many."""
        distance, via = self._search()
        for node, value in enumerate(distance):
            if value < UNREACHED:
                self._potential[node] += int(value)
        way: list[int] = []
        node = len(self._edges) - 1
        while node != 0:
            way.append(via[node])
            node = self._heads[via[node] ^ 1]
        pushed = min(most, *(self._room[edge] for edge in way))
        for edge in way:
            self._room[edge] -= pushed
            self._room[edge ^ 1] += pushed
        return pushed

    def _first_potential(self) -> list[int]:
        """Distances from node 0: nodes are in order already."""
        found: list[float] = [0.0, *(UNREACHED for _ in self._edges[1:])]
        best: list[int] = [0] * len(self._edges)
        for node, edges in enumerate(self._edges):
            for edge in edges:
                head = self._heads[edge]
                if self._room[edge] > 0 and best[node] + self._costs[edge] < found[head]:
                    best[head] = best[node] + self._costs[edge]
                    found[head] = best[head]
        return best

    def _search(self) -> tuple[list[float], list[int]]:
        """(distances under the potentials, the edge each node is reached by)."""
        distance: list[float] = [0.0, *(UNREACHED for _ in self._edges[1:])]
        via = [-1] * len(self._edges)
        heap: list[tuple[float, int]] = [(0.0, 0)]
        while heap:
            so_far, node = heappop(heap)
            if so_far > distance[node]:
                continue
            for edge in self._edges[node]:
                if self._room[edge] <= 0:
                    continue
                head = self._heads[edge]
                cost = self._costs[edge] + self._potential[node] - self._potential[head]
                if so_far + cost < distance[head]:
                    distance[head] = so_far + cost
                    via[head] = edge
                    heappush(heap, (distance[head], head))
        return distance, via
