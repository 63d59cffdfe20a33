"""What each checkpoint is worth, kept in order while labels, retentions and tiers change. Knows ranks and keys; moves nothing.

Memory runs short at almost every step of a full engine, with thousands of checkpoints in it; between two steps a few of them change.
So the order of each tier is kept sorted, and a change costs what it touches: O(log checkpoints) for each label.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, MutableMapping
from heapq import heappop, heappush

from engine.api import ContinuationId, Retention, Tier
from engine.planner.residency import PINNED, Label, Rank, Worth

Ranked = tuple[Rank, int]
"""A checkpoint's key under what it's worth."""


class Ranking(MutableMapping[ContinuationId, Retention]):
    """As a mapping: the retentions told so far. A continuation's labels need its retention; it may go when they have. `now` (Unix
    seconds) is the latest moment it was asked about: pins that ended by then count no more.
    """

    def __init__(self) -> None:
        self.now = float("-inf")
        self._retentions: dict[ContinuationId, Retention] = {}
        self._labels: dict[ContinuationId, dict[int, Label]] = {}
        self._tiers: dict[int, Tier] = {}
        # Of each checkpoint: its labels' ranks, and the same sorted; the last is its own.
        self._of: dict[int, dict[ContinuationId, Rank]] = {}
        self._sorted: dict[int, list[Rank]] = {}
        self._orders: dict[Tier, list[Ranked]] = {tier: [] for tier in Tier}
        self._pin_ends: list[tuple[float, ContinuationId]] = []

    # --- what checkpoints are and where ----------------------------------------------------------

    def label(self, key: int, tier: Tier, label: Label) -> None:
        """A checkpoint has a label, or has it anew."""
        self._tiers.setdefault(key, tier)
        self._labels.setdefault(label.continuation, {})[key] = label
        self._put(key, label.continuation, Worth(self._retentions, self.now).label(label))

    def unlabel(self, key: int, continuation: ContinuationId) -> None:
        """A checkpoint has lost a label; with the last one it isn't ranked any more."""
        self._put(key, continuation, None)
        del self._labels[continuation][key]
        if not self._labels[continuation]:
            del self._labels[continuation]
        if not self._of[key]:
            del self._of[key], self._sorted[key], self._tiers[key]

    def move(self, key: int, tier: Tier) -> None:
        """A checkpoint is in another tier."""
        if key in self._tiers:
            self._take_out(key)
            self._tiers[key] = tier
            self._put_in(key)

    # --- what they are worth ---------------------------------------------------------------------

    def at(self, now: float) -> "Ranking":
        """This, at `now`. O(labels whose pin has ended since)."""
        self.now = max(self.now, now)
        while self._pin_ends and self._pin_ends[0][0] <= self.now:
            _, continuation = heappop(self._pin_ends)
            self._rerank(continuation)
        return self

    def rank(self, key: int) -> Rank:
        return self._sorted[key][-1]

    def order(self, tier: Tier) -> list[Ranked]:
        """The tier's checkpoints as they are now, by ascending worth."""
        return self._orders[tier].copy()

    def pinned(self, tier: Tier) -> list[int]:
        """Keys of the tier's pinned checkpoints."""
        order = self._orders[tier]
        return [key for _, key in order[bisect_left(order, ((PINNED,),)) :]]

    # --- retentions ------------------------------------------------------------------------------

    def __setitem__(self, continuation: ContinuationId, retention: Retention) -> None:
        if self._retentions.get(continuation) == retention:
            return
        self._retentions[continuation] = retention
        if retention.pinned_until is not None and retention.pinned_until > self.now:
            heappush(self._pin_ends, (retention.pinned_until, continuation))
        self._rerank(continuation)

    def __delitem__(self, continuation: ContinuationId) -> None:
        assert continuation not in self._labels
        del self._retentions[continuation]

    def __getitem__(self, continuation: ContinuationId) -> Retention:
        return self._retentions[continuation]

    def __iter__(self) -> Iterator[ContinuationId]:
        return iter(self._retentions)

    def __len__(self) -> int:
        return len(self._retentions)

    def _rerank(self, continuation: ContinuationId) -> None:
        worth = Worth(self._retentions, self.now)
        for key, label in self._labels.get(continuation, {}).items():
            self._put(key, continuation, worth.label(label))

    # --- the orders ------------------------------------------------------------------------------

    def _put(self, key: int, continuation: ContinuationId, rank: Rank | None) -> None:
        ranks, ascending = self._of.setdefault(key, {}), self._sorted.setdefault(key, [])
        known = ranks.pop(continuation, None)
        if known == rank and rank is not None:
            ranks[continuation] = rank
            return
        self._take_out(key)
        if known is not None:
            del ascending[bisect_left(ascending, known)]
        if rank is not None:
            ranks[continuation] = rank
            insort(ascending, rank)
        self._put_in(key)

    def _take_out(self, key: int) -> None:
        if self._sorted[key]:
            order = self._orders[self._tiers[key]]
            del order[bisect_left(order, (self.rank(key), key))]

    def _put_in(self, key: int) -> None:
        if self._sorted[key]:
            insort(self._orders[self._tiers[key]], (self.rank(key), key))
