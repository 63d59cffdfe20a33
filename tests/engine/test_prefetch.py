"""Hints: what only the disk has comes to memory before it's asked for, after all that is waited for, and nothing is lost by it."""

from pathlib import Path

import pytest

from engine.api import ContinuationId, Retention, Tier
from engine.cache.disk_files import Kind
from engine.cache.prefetch import MOST_HINTS
from engine.cache.restore import Restores
from engine.loop import ASLEEP_S
from tests.engine.fake_model import oracle, prompt
from tests.engine.rig import Rig
from tests.engine.test_disk import asleep, tier_of, tiers

PIN = 1e9


def counted(rig: Rig, name: str) -> int:
    return rig.snapshot().counters[name]


def test_it_comes_to_the_host_and_on_to_a_device_with_room(tmp_path: Path) -> None:
    rig, (line, *_) = asleep(tmp_path, 2)
    rig.prefetch("c0")
    rig.rest()
    assert (tiers(rig, "c0"), tiers(rig, "c1")) == ({Tier.DEVICE}, {Tier.DISK})
    assert rig.cache.pages.host.used == 0
    request = rig.ask([*line, 3, 4], "c0", max_tokens=6)
    source = rig.started(request).source
    assert source is not None
    assert (source.tier, source.position) == (Tier.DEVICE, len(line))
    assert rig.output(request) == oracle([*line, 3, 4], 6)
    assert counted(rig, "disk_checkpoints_restored") == counted(rig, "prefetches_begun") == 1
    assert counted(rig, "prefetched_to_device") == 1


@pytest.mark.parametrize("cut", [1, 7, 8, 9, 64, 99])
def test_wherever_its_tail_is(tmp_path: Path, cut: int) -> None:
    first = Rig(disk=tmp_path)
    first.ask(prompt(100), anchors=(cut,), save_tip=False)
    first.settle()
    first.kill()
    rig = Rig(disk=tmp_path, life="d")
    rig.prefetch("a")
    rig.rest()
    assert tiers(rig, "a") == {Tier.DEVICE}
    request = rig.ask(prompt(100), "b", max_tokens=7)
    assert rig.started(request).reused_tokens == cut
    assert rig.output(request) == oracle(prompt(100), 7)


def test_a_tail_that_is_shorter_than_its_page_comes_as_a_page_of_its_own(tmp_path: Path) -> None:
    """The page's first 3 tokens are on the host, all 8 only on disk: moved to the device it must not pass for the whole page."""
    rig = Rig(disk=tmp_path)
    rig.ask(prompt(9), anchors=(3, 8), max_tokens=1, save_tip=False)
    rig.settle()
    store = rig.cache.checkpoints
    early, late = sorted(store.all.values(), key=lambda each: each.position)
    store.demote(early)
    store.settle_on_disk(late)
    store.promote(early)
    request = rig.ask([*prompt(8), 50, 60], "b", max_tokens=6)
    assert rig.started(request).reused_tokens == 8
    assert rig.output(request) == oracle([*prompt(8), 50, 60], 6)


def test_all_of_a_continuation_the_newest_first(tmp_path: Path) -> None:
    first = Rig(disk=tmp_path)
    first.ask(prompt(100), "a", anchors=(20, 50, 80))
    first.settle()
    first.kill()
    # Room for the tip (14 pages, an image of 5 cells) and one image more.
    rig = Rig(disk=tmp_path, life="d", host_cells=24, device_cells=28, context=200)
    held = rig.submit(prompt(180, seed=4), "held", max_tokens=20)
    rig.step()
    rig.prefetch("a")
    for _ in range(8):
        rig.step()
    assert held in rig.loop.turns
    places = {position: each.tier for position, each in rig.checkpoints("a").items()}
    assert places == {20: "disk", 50: "disk", 80: "host", 105: "host"}
    assert counted(rig, "prefetches_given_up") == 2


def test_what_is_waited_for_goes_first(tmp_path: Path) -> None:
    rig, (first, *_) = asleep(tmp_path, 3, disk_jobs=0)
    rig.prefetch("c2", "c1")
    rig.step()
    assert rig.cache.is_reading
    assert not rig.cache.is_restoring
    request = rig.submit([*first, 3, 4], "c0")
    rig.step()
    assert rig.cache.is_restoring
    rig.disk_jobs = 1
    while tiers(rig, "c0") == {Tier.DISK}:
        rig.step()
        assert tiers(rig, "c1") == tiers(rig, "c2") == {Tier.DISK}
    rig.disk_jobs = 1000
    rig.rest()
    assert rig.started(request).reused_tokens == len(first)
    assert Tier.DISK not in tiers(rig, "c1") | tiers(rig, "c2")


def test_a_request_takes_over_what_is_on_its_way(tmp_path: Path) -> None:
    rig, (line, *_) = asleep(tmp_path, 1, disk_jobs=0)
    rig.prefetch("c0")
    rig.step()
    request = rig.submit([*line, 3, 4], "c0")
    rig.step()
    assert rig.cache.is_restoring
    rig.disk_jobs = 1000
    rig.run()
    assert rig.started(request).reused_tokens == len(line)
    assert counted(rig, "disk_checkpoints_restored") == 1
    assert rig.output(request) == oracle([*line, 3, 4], 4)


def test_it_gives_way_to_what_needs_the_host(tmp_path: Path) -> None:
    """What is on its way holds the host's cells; a checkpoint worth less takes them all the same."""
    rig, _ = asleep(tmp_path, 1, disk_jobs=0, host_cells=20, device_cells=40, context=200)
    rig.prefetch("c0")
    rig.step()
    assert rig.cache.pages.host.used == 19
    rig.ask(prompt(100, seed=5), "x", save_tip=False, anchors=(96,), priority=-1)
    rig.ask(prompt(190, seed=6), "y", save_tip=False)
    assert tiers(rig, "x") == {Tier.HOST}
    assert not rig.dropped


@pytest.mark.parametrize("kept", [True, False])
def test_it_takes_the_place_of_what_the_disk_has_too(tmp_path: Path, kept: bool) -> None:
    """The host is full of something worth less."""
    rig, _ = asleep(tmp_path, 1, host_cells=20, device_cells=40, context=200)
    if not kept:
        tier_of(rig).limit_bytes = tier_of(rig).used_bytes
    rig.retain(Retention(ContinuationId("c0"), 5, 1.0))
    rig.ask(prompt(100, seed=5), "x", save_tip=False, anchors=(96,), priority=0)
    rig.settle()
    held = rig.submit(prompt(190, seed=6), "y", save_tip=False, max_tokens=10)
    while tiers(rig, "x") != {Tier.HOST}:
        rig.step()
    rig.prefetch("c0")
    for _ in range(6):
        rig.step()
    assert held in rig.loop.turns
    assert tiers(rig, "c0") == {Tier.HOST if kept else Tier.DISK}
    assert tiers(rig, "x") == {Tier.DISK if kept else Tier.HOST}
    assert not rig.dropped


def test_nothing_is_pushed_out_of_the_device(tmp_path: Path) -> None:
    rig, _ = asleep(tmp_path, 1, device_cells=36, context=200)
    rig.ask(prompt(97, seed=5), "x", save_tip=False, anchors=(96,), priority=-1)
    rig.ask(prompt(40, seed=6), "y", save_tip=False, anchors=(32,), priority=-1)
    assert rig.cache.pages.device.free < 18
    rig.prefetch("c0")
    rig.rest()
    assert tiers(rig, "c0") == {Tier.HOST}
    assert tiers(rig, "x") == tiers(rig, "y") == {Tier.DEVICE}


def test_unknown_ones_and_no_disk_are_nothing() -> None:
    rig = Rig()
    rig.ask(prompt(30), "a")
    rig.prefetch("nobody", "a")
    rig.rest()
    assert tiers(rig, "a") == {Tier.DEVICE}
    assert counted(rig, "prefetches_begun") == counted(rig, "prefetches_given_up") == 0


def test_hints_are_bounded(tmp_path: Path) -> None:
    rig, _ = asleep(tmp_path, 1)
    rig.prefetch("c0", *(f"n{number}" for number in range(MOST_HINTS)))
    assert counted(rig, "hints_forgotten") == 1
    rig.rest()
    assert tiers(rig, "c0") == {Tier.DISK}


def test_hints_are_bounded_while_nothing_can_be_moved(tmp_path: Path) -> None:
    rig, _ = asleep(tmp_path, 1)
    rig.submit(prompt(40, seed=2), "x", max_tokens=20)
    for batch in range(3):
        rig.prefetch(*(f"n{batch}-{number}" for number in range(MOST_HINTS // 2)))
        rig.step()
    assert counted(rig, "hints_forgotten") == MOST_HINTS // 2


def test_a_fault_in_it_touches_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig, (line, *_) = asleep(tmp_path, 1)
    running = rig.submit(prompt(40, seed=2), "x", max_tokens=20)
    rig.step()
    with monkeypatch.context() as patch:
        patch.setattr(Restores, "begin", None)
        rig.prefetch("c0")
        rig.step()
    rig.rest()
    assert rig.output(running) == oracle(prompt(40, seed=2), 20)
    assert rig.loop.fault is None
    assert tiers(rig, "c0") == {Tier.DISK}
    assert rig.started(rig.ask([*line, 3], "c0")).reused_tokens == len(line)


class TestForWhatIsPrepared:
    def test_it_goes_on_from_what_the_disk_has(self, tmp_path: Path) -> None:
        rig, (line, *_) = asleep(tmp_path, 1, disk_jobs=0)
        ahead = rig.prepare([*line, *prompt(40, seed=7)], "c0")
        rig.step()
        assert rig.cache.is_reading
        assert rig.loop._patience() == ASLEEP_S
        rig.disk_jobs = 1
        rig.rest()
        assert rig.prepared(ahead).outcome == "done"
        assert rig.prepared(ahead).computed_tokens == 40

    def test_without_room_for_that_it_computes_more(self, tmp_path: Path) -> None:
        rig, (line, *_) = asleep(tmp_path, 1, host_cells=0, device_cells=40, context=200)
        rig.ask(prompt(90, seed=9), "x", anchors=(89,), save_tip=False, max_tokens=1, priority=9)
        assert rig.cache.pages.device.free < 18 + 6
        ahead = rig.prepare([*line[:60], *prompt(20, seed=7)], "a", priority=10)
        rig.rest()
        assert rig.prepared(ahead).computed_tokens == 80

    def test_damage_on_the_way(self, tmp_path: Path) -> None:
        rig, (line, *_) = asleep(tmp_path, 1)
        for name in rig.files.sizes(Kind.STATE):
            rig.files.path(Kind.STATE, name).write_bytes(b"nothing")
        ahead = rig.prepare([*line, 3, 4], "c0")
        rig.rest()
        assert rig.prepared(ahead).outcome == "done"
        assert rig.prepared(ahead).computed_tokens == len(line) + 2
