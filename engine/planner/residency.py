"""Who goes first when a tier runs short, as values. Pure: told what is held and what it is worth, moves nothing.

Order: expendable checkpoints as listed, then continuations by ascending (priority, used_at), oldest checkpoint first, then pinned
ones, which may be demoted and never dropped. A checkpoint under several labels is worth what its best label is. Stranded
bytes come before all of these and need no rank: what nothing holds is free at once. Out of memory altogether go first those
that the disk holds too, since nothing is lost with them.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from engine.api import AnchorKind, CheckpointId, ContinuationId, Retention

Rank = tuple[int, float, float, int]
"""Ascending worth: (class, priority, used_at, place in the class)."""

EXPENDABLE, KEPT, PINNED = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Label:
    """A continuation's name for a checkpoint. `serial` rises with each time the label was wanted."""

    checkpoint: CheckpointId
    continuation: ContinuationId
    kind: AnchorKind
    serial: int


class Worth:
    """Ranks labels under the retentions told so far, at one moment `now` (Unix seconds). O(1) to make: a continuation's expendable
    checkpoints are numbered when the first of its labels is ranked.
    """

    def __init__(self, retentions: Mapping[ContinuationId, Retention], now: float) -> None:
        self._retentions = retentions
        self._now = now
        self._places: dict[ContinuationId, dict[CheckpointId, int]] = {}

    def label(self, label: Label) -> Rank:
        retention = self._retentions[label.continuation]
        standing = (float(retention.priority), retention.used_at)
        places = self._places.get(label.continuation)
        if places is None:
            places = {checkpoint: at for at, checkpoint in enumerate(retention.expendable)}
            self._places[label.continuation] = places
        place = places.get(label.checkpoint)
        if place is not None:
            return (EXPENDABLE, *standing, place)
        pinned = retention.pinned_until is not None and retention.pinned_until > self._now
        return (PINNED if pinned else KEPT, *standing, label.serial)

    def checkpoint(self, labels: Iterable[Label]) -> Rank:
        return max(map(self.label, labels))


def leaving_memory(rank: Rank, on_disk: bool) -> tuple[bool, bool, Rank]:
    """Sort key for leaving the lowest tier of memory: the expendable, then what the disk keeps, then what will be lost."""
    kept = rank[0] != EXPENDABLE
    return (kept, kept and not on_disk, rank)


def written_first(
    rank: Rank, is_tip: bool, is_idle: bool
) -> tuple[bool, bool, float, float, float, int]:
    """Sort key for the way to disk: tips of idle continuations, what else is idle, the busy; each by falling worth."""
    worth, priority, used_at, place = rank
    return (not is_idle, not is_tip, -worth, -priority, -used_at, -place)


Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Held(Generic[Key]):
    """What one checkpoint holds in a tier: `own` for its image, and pages it may share. In cells, on disk in bytes."""

    own: int
    pages: Sequence[Key]


def choose_victims(
    order: Iterable[Held[Key]], holders: Callable[[Key], int], short: int, page_size: int = 1
) -> int | None:
    """How many of `order`, from its front, must leave so that `short` (cells or bytes) come free; None if all are not enough.

    `holders` counts who holds a page in the tier, checkpoints of `order` and others; a page is freed with its last holder, so the sum is
    of the joint state afterwards. Takes no more of `order` than that. O(pages of the victims).
    """
    if short <= 0:
        return 0
    left: dict[Key, int] = {}
    for count, held in enumerate(order, 1):
        short -= held.own
        for page in held.pages:
            left[page] = left.get(page, holders(page)) - 1
            short -= page_size if left[page] == 0 else 0
        if short <= 0:
            return count
    return None
