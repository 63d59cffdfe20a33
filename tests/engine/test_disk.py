"""The disk tier around the fake model: what is written when, what comes back, what a restart finds, who holds up whom."""

from pathlib import Path

import pytest

from engine.api import ResumeReason, Tier
from engine.cache.disk_files import Kind
from tests.engine.fake_model import oracle
from tests.engine.rig import Rig


def prompt(length: int, seed: int = 0) -> list[int]:
    return [10 + (seed * 7919 + at * 104_729 + at * at * 31) % 180 for at in range(length)]


def files(rig: Rig, kind: Kind) -> set[str]:
    return set(rig.files.sizes(kind))


def tiers(rig: Rig, continuation: str) -> set[Tier]:
    return {info.tier for info in rig.checkpoints(continuation).values()}


def small(disk: Path, **options: object) -> Rig:
    """A device that two prompts of 100 tokens fill, and no host."""
    return Rig(device_cells=40, host_cells=0, lanes=2, context=200, disk=disk, **options)  # type: ignore[arg-type]


def test_what_leaves_memory_stays_on_disk_and_comes_back(tmp_path: Path) -> None:
    rig = small(tmp_path)
    lines = []
    for number in range(6):
        lines.append(rig.line(prompt(100, number), rig.ask(prompt(100, number), f"c{number}")))
        rig.settle()
    assert tiers(rig, "c0") == {Tier.DISK}
    assert not rig.dropped
    for number, line in enumerate(lines):
        request = rig.ask([*line, 33, 44], f"c{number}", max_tokens=6)
        started = rig.started(request)
        assert started.reused_tokens == len(line)
        assert started.reason is ResumeReason.RESUMED
        assert rig.output(request) == oracle([*line, 33, 44], 6)


def test_a_restart_finds_continuations_with_their_labels(tmp_path: Path) -> None:
    rig = Rig(disk=tmp_path)
    first = rig.ask(prompt(100), anchors=(40, 64))
    rig.settle()
    line, before = rig.line(prompt(100), first), rig.checkpoints("a")
    rig.kill()
    again = Rig(disk=tmp_path, life="d")
    after = again.checkpoints("a")
    assert {at: (i.checkpoint, i.kind) for at, i in after.items()} == {
        at: (i.checkpoint, i.kind) for at, i in before.items()
    }
    assert {info.tier for info in after.values()} == {Tier.DISK}
    request = again.ask([*line, 50, 60], max_tokens=5)
    started = again.started(request)
    assert started.source is not None
    assert (started.reused_tokens, started.source.tier) == (len(line), Tier.DISK)
    assert again.output(request) == oracle([*line, 50, 60], 5)
    assert len(again.checkpoints("a")) == len(after) + 1


@pytest.mark.parametrize("host_cells", [0, 200])
@pytest.mark.parametrize("cut", [1, 7, 8, 9, 64, 99])
def test_restored_to_host_or_device(tmp_path: Path, cut: int, host_cells: int) -> None:
    rig = Rig(disk=tmp_path)
    rig.ask(prompt(100), anchors=(cut,), save_tip=False)
    rig.settle()
    rig.kill()
    again = Rig(disk=tmp_path, host_cells=host_cells, life="d")
    request = again.ask(prompt(100), "b", max_tokens=7)
    assert again.started(request).reused_tokens == cut
    assert again.output(request) == oracle(prompt(100), 7)
    assert (again.cache.pages.host.used > 0) == (host_cells > 0)
