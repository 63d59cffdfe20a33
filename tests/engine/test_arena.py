"""Host memory that can't be page-locked is ordinary memory, and somebody is told."""

import pytest
import torch

from engine.cache import arena, store
from engine.cache.arena import host_arena
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
