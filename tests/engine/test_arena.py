"""Cells that are taken and copied; host memory that can't be page-locked is ordinary memory, and somebody is told."""

import pytest
import torch

from engine.api import Tier
from engine.cache import arena, store
from engine.cache.arena import Arena, host_arena
from tests.engine.fake_model import oracle
from tests.engine.rig import Rig


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The system grants no page-locked memory."""
    asked: list[tuple[int, int]] = []
    real = arena.host_rows

    def refuse(cells: int, words: int, pinned: bool) -> torch.Tensor:
        if pinned:
            asked.append((cells, words))
            raise RuntimeError("CUDA error: out of memory")
        return real(cells, words, pinned=False)

    monkeypatch.setattr(arena, "host_rows", refuse)
    return asked


def test_refused_memory_is_ordinary_memory(
    refusals: list[tuple[int, int]], caplog: pytest.LogCaptureFixture
) -> None:
    host = host_arena(100, 1 << 10, pinned=True)
    assert refusals == [(100, 1 << 10)]
    assert (host.cells, host.free) == (100, 100)
    assert host.unpinned_bytes == 100 * 8 << 10
    host.write([3], torch.full((1, 1 << 10), 7))
    assert host.read([3]).eq(7).all()
    (warning,) = caplog.records
    assert warning.levelname == "WARNING"
    assert "0.0 GiB of page-locked memory (CUDA error: out of memory)" in warning.getMessage()


def test_nothing_is_said_where_none_was_asked_for(
    refusals: list[tuple[int, int]], caplog: pytest.LogCaptureFixture
) -> None:
    host = host_arena(100, 8, pinned=False)
    assert host.unpinned_bytes == 0
    assert not refusals
    assert not caplog.records


def test_memory_that_is_not_there_at_all_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> torch.Tensor:
        raise RuntimeError("no memory")

    monkeypatch.setattr(arena, "host_rows", refuse)
    for pinned in (True, False):
        with pytest.raises(RuntimeError, match="no memory"):
            host_arena(4, 8, pinned)


def test_the_engine_runs_on_it_and_counts_it(
    refusals: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "host_arena", lambda cells, words, _: host_arena(cells, words, True))
    rig = Rig(device_cells=40, host_cells=300, lanes=2, context=200)
    prompts = [[10 + (seed * 37 + at * 11) % 180 for at in range(100)] for seed in range(5)]
    for number, prompt in enumerate(prompts):
        rig.ask(prompt, f"c{number}", anchors=(60,))
    request = rig.ask([*prompts[0], 20], "c0")
    assert rig.started(request).source is not None
    assert rig.output(request) == oracle([*prompts[0], 20], 4)
    assert len(refusals) == 1
    counted = rig.snapshot().counters["host_bytes_unpinned"]
    assert counted == rig.cache.pages.host.cells * rig.cache.pages.host.cell_bytes


def test_ordinary_engines_count_none() -> None:
    assert Rig().snapshot().counters["host_bytes_unpinned"] == 0


def test_cells_are_copied_between_arenas() -> None:
    source, target = (
        Arena(tier, torch.zeros(5, 3, dtype=torch.int64)) for tier in Tier if tier != "disk"
    )
    source.write([1, 4], torch.arange(6).view(2, 3))
    target.copy([3, 0], source, [1, 4])
    assert target.rows.tolist() == [[3, 4, 5], [0, 0, 0], [0, 0, 0], [0, 1, 2], [0, 0, 0]]


def test_cells_that_are_taken_come_back_when_it_fails() -> None:
    host = Arena(Tier.HOST, torch.zeros(5, 3, dtype=torch.int64))
    with pytest.raises(ZeroDivisionError), host.taken(2):
        raise ZeroDivisionError
    with host.taken(2) as cells:
        pass
    assert host.used == len(set(cells)) == 2
