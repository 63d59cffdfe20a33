"""Deciding whether and where a request starts costs what lies on its own path, not what the engine holds."""

import time
from collections.abc import Iterator

import pytest

from engine.api import ContinuationId, Retention
from engine.cache.checkpoints import Checkpoint
from engine.cache.ranking import Ranked, Ranking
from engine.planner.residency import Label, Rank, Worth
from tests.engine.rig import Rig

FEW, MANY = 200, 2000
HEAD = [10 + at * 37 % 180 for at in range(40)]
TRIES = 60


def own(number: int, length: int = 9) -> list[int]:
    return [10 + number % 180, 10 + number // 180, *(10 + at for at in range(length - 2))]


def filled(checkpoints: int) -> Rig:
    """One head, and that many conversations that branch off it with one checkpoint each; some expendable, one of them pinned."""
    rig = Rig(device_cells=7 * MANY + 100, host_cells=50, lanes=2, max_waiting=10)
    rig.loop.check_integrity = False
    for number in range(checkpoints):
        tokens = [*HEAD, *own(number)]
        rig.ask(
            tokens,
            f"c{number}",
            anchors=(40, 49),
            max_tokens=1,
            save_tip=False,
            priority=number % 3,
            pinned_until=1e9 if number == 7 else None,
        )
    assert len(rig.cache.checkpoints.all) == checkpoints + 1
    return rig


@pytest.fixture(scope="module")
def rigs() -> dict[int, Rig]:
    return {count: filled(count) for count in (FEW, MANY)}


def decide(rig: Rig, number: int, branches_off: bool = False) -> float:
    """Seconds from the tokens to the lane, of one that goes on from its own state or from the head. Leaves no lane taken."""
    tokens = [*HEAD, *own(number + 9000 * branches_off), 99, 98, 97]
    begun = time.perf_counter()
    request = rig.submit(tokens, f"c{number}", max_tokens=1, save_tip=False)
    (entry,) = rig.scheduler.admit(rig.now)
    taken = time.perf_counter() - begun
    assert getattr(entry, "reused", None) == (40 if branches_off else 49)
    rig.cancel(request)
    rig.loop.scheduler.take_dropped()
    return taken


def count_ranked(monkeypatch: pytest.MonkeyPatch) -> list[Label]:
    """Every label that is ranked from now on."""
    ranked: list[Label] = []
    rank = Worth.label

    def noting(self: Worth, label: Label) -> Rank:
        ranked.append(label)
        return rank(self, label)

    monkeypatch.setattr(Worth, "label", noting)
    return ranked


def test_it_ranks_as_many_labels_with_2000_checkpoints_as_with_200(
    rigs: dict[int, Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    ranked = count_ranked(monkeypatch)
    costs = []
    for rig in rigs.values():
        before = len(ranked)
        decide(rig, 3)
        costs.append(len(ranked) - before)
    assert costs[0] == costs[1] < 20


@pytest.mark.parametrize("branches_off", [False, True])
def test_it_takes_as_long(rigs: dict[int, Rig], branches_off: bool) -> None:
    """The best of many tries, so that whatever else this machine does isn't measured. Work for each checkpoint made it tenfold."""
    best = dict.fromkeys(rigs, float("inf"))
    for number in range(TRIES):
        for count, rig in rigs.items():
            best[count] = min(best[count], decide(rig, number, branches_off))
    assert best[MANY] < 2.5 * best[FEW]


def test_making_room_looks_at_its_victims_only(
    rigs: dict[int, Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Ranked] = []
    order = Ranking.order

    class Noting(list[Ranked]):
        def __iter__(self) -> Iterator[Ranked]:
            for each in super().__iter__():
                looked.append(each)
                yield each

    monkeypatch.setattr(Ranking, "order", lambda self, tier: Noting(order(self, tier)))
    costs = []
    for rig in rigs.values():
        before = len(looked)
        assert rig.cache.reclaim.device_room(rig.cache.pages.device.free + 12, rig.now)
        costs.append(len(looked) - before)
    assert costs[0] == costs[1] < 30


def test_finishing_forgets_only_its_own(rigs: dict[int, Rig]) -> None:
    """A retention lives as long as its continuation holds something or asks; ending a request asks after that one alone."""
    rig = rigs[MANY]
    request = rig.submit([20] * 5, "passing", max_tokens=1, save_tip=False)
    assert "passing" in rig.cache.reclaim.retentions
    rig.run()
    assert rig.finished(request)
    assert "passing" not in rig.cache.reclaim.retentions
    rig.retain(Retention(ContinuationId("nobody"), 1, 1.0))
    assert "nobody" not in rig.cache.reclaim.retentions


def test_what_memory_takes_is_forgotten(rigs: dict[int, Rig]) -> None:
    rig = Rig(device_cells=40, host_cells=0, lanes=1, context=200)
    for number in range(4):
        rig.ask([*own(number, 100)], f"c{number}")
    held: set[ContinuationId] = set(rig.cache.checkpoints.of)
    assert len(held) < 4
    assert set(rig.cache.reclaim.retentions) == held


def test_a_label_among_thousands_on_one_head_is_ranked_alone(
    rigs: dict[int, Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = rigs[MANY]
    head: Checkpoint = max(rig.cache.checkpoints.all.values(), key=lambda each: len(each.labels))
    assert len(head.labels) >= MANY - 1
    ranked = count_ranked(monkeypatch)
    rig.retain(Retention(ContinuationId("c5"), 5, rig.now))
    rig.retain(Retention(ContinuationId("c5"), 0, rig.now))
    assert len(ranked) == 2 * len(rig.cache.checkpoints.of[ContinuationId("c5")])
