"""The edges of what may be asked: prompts that fill the context, a device of the least size, a cancel before any step of a crowded engine."""

from pathlib import Path

import pytest

from engine.api import Finished, RejectCode, Rejected, RequestId
from engine.cache.disk_files import Kind
from tests.engine.fake_model import PAGE_TOKENS, oracle, prompt
from tests.engine.rig import Rig

CONTEXT = 400
CROWD = ("restored", "beside", "leader", "follower", "long")


def least_device(**options: int) -> Rig:
    """Room for one context and one state image, and not a cell more."""
    cells = CONTEXT // PAGE_TOKENS + Rig().cache.checkpoints.image_cells
    return Rig(device_cells=cells, host_cells=0, context=CONTEXT, **options)


@pytest.mark.parametrize("most", [1, 5, None])
@pytest.mark.parametrize("room", [1, 2, 7, 8, 9])
def test_a_prompt_that_leaves_little_room(room: int, most: int | None) -> None:
    tokens = prompt(CONTEXT - room)
    rig = least_device()
    expected = oracle(tokens, min(room, most or room))
    for name in ("cold", "warm"):
        anchors = (8, 200, len(tokens) - 1, len(tokens))
        request = rig.ask(tokens, name, anchors=anchors, max_tokens=most, ladder_tokens=64)
        assert isinstance(rig.end(request), Finished)
        assert rig.output(request) == expected
        rig.drop("cold")
    rig.drop("warm")
    assert rig.cache.pages.device.used == 0


@pytest.mark.parametrize("over", [0, 1, 500])
def test_a_prompt_that_leaves_none(over: int) -> None:
    rig = least_device()
    end = rig.end(rig.ask(prompt(CONTEXT + over)))
    assert isinstance(end, Rejected)
    assert end.code is RejectCode.CONTEXT_LENGTH_EXCEEDED
    assert (end.needed, end.available) == (CONTEXT + over + 1, CONTEXT)


def crowd(disk: Path) -> tuple[Rig, dict[str, tuple[list[int], RequestId]]]:
    """One comes back from disk, one is beside it, one follows another, and a long one has them make way for each other."""
    first = Rig(disk=disk)
    line = first.line(prompt(100), first.ask(prompt(100), "old", anchors=(40,)))
    first.settle()
    first.kill()
    rig = Rig(
        device_cells=44, host_cells=20, lanes=3, context=320, disk=disk, disk_jobs=1, life="d"
    )
    prompts = (
        *([*line, 5, 6], [*line, 5, 7], prompt(120, 3)),
        *([*prompt(120, 3)[:90], 9, 9], prompt(200, 5)),
    )
    asked = {
        name: (tokens, rig.submit(tokens, name, anchors=(30,), max_tokens=20, priority=at % 3))
        for at, (name, tokens) in enumerate(zip(CROWD, prompts, strict=True))
    }
    return rig, asked


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5, 8, 13, 21, 34, 55])
@pytest.mark.parametrize("victim", CROWD)
def test_a_cancel_at_any_moment(tmp_path: Path, victim: str, steps: int) -> None:
    rig, asked = crowd(tmp_path)
    for _ in range(steps):
        rig.step()
    rig.cancel(asked[victim][1])
    rig.disk_jobs = 1000
    rig.run()
    for name, (tokens, request) in asked.items():
        said, expected = rig.output(request), oracle(tokens, 20)
        assert said == (expected[: len(said)] if name == victim else expected)
    for name in (*CROWD, "old"):
        rig.drop(name)
    rig.settle()
    assert rig.cache.pages.device.used == rig.cache.pages.host.used == 0
    assert not any(rig.files.sizes(kind) for kind in Kind)
    assert not rig.cache.reclaim.retentions
