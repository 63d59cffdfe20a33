"""The disk tier around the fake model: what is written when, what comes back, what a restart finds, who holds up whom."""

from pathlib import Path
from typing import Any

import pytest

from engine.api import ContinuationId, Rejected, RequestId, ResumeReason, Retention, Tier
from engine.cache.disk_files import Kind
from engine.cache.disk_tier import DiskTier
from tests.engine.fake_model import oracle
from tests.engine.rig import Rig


def prompt(length: int, seed: int = 0) -> list[int]:
    return [10 + (seed * 7919 + at * 104_729 + at * at * 31) % 180 for at in range(length)]


def tier_of(rig: Rig) -> DiskTier:
    assert rig.cache.disk is not None
    return rig.cache.disk.tier


def tiers(rig: Rig, continuation: str) -> set[Tier]:
    return {info.tier for info in rig.checkpoints(continuation).values()}


def on_disk(rig: Rig) -> set[tuple[str, int]]:
    """(continuation, position) of all labels that have a complete copy."""
    return {
        (continuation, each.position)
        for each in rig.cache.checkpoints.all.values()
        if each.on_disk
        for continuation in each.labels
    }


def small(disk: Path, **options: Any) -> Rig:
    """A device that two prompts of 100 tokens fill, and no host."""
    plain = {"device_cells": 40, "host_cells": 0, "lanes": 2, "context": 200, "disk": disk}
    return Rig(**(plain | options))


def asleep(
    disk: Path, count: int, length: int = 100, **options: Any
) -> tuple[Rig, list[list[int]]]:
    """An engine that has just started and whose state is all on disk; the lines of continuations c0, c1, …"""
    first = Rig(disk=disk, disk_bytes=1 << 30)
    lines = []
    for number in range(count):
        request = first.ask(prompt(length, number), f"c{number}")
        lines.append(first.line(prompt(length, number), request))
    first.settle()
    first.kill()
    return Rig(disk=disk, life="d", **options), lines


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


def test_the_host_drops_nothing_that_the_disk_has(tmp_path: Path) -> None:
    rig = small(tmp_path, host_cells=40)
    for number in range(8):
        rig.ask(prompt(100, number), f"c{number}")
        rig.settle()
    assert {tier for n in range(8) for tier in tiers(rig, f"c{n}")} == set(Tier)
    assert not rig.dropped
    moves = rig.cache.reclaim.moves
    assert moves.demoted > 0
    assert moves.left_to_disk > 0
    assert moves.dropped == 0


def test_what_the_disk_has_not_yet_is_lost_not_left(tmp_path: Path) -> None:
    """Copy before release: with a disk that does nothing, memory can only drop."""
    rig = small(tmp_path, disk_jobs=0)
    for number in range(4):
        rig.ask(prompt(100, number), f"c{number}")
    assert {info.continuation for info in rig.dropped} >= {"c0", "c1"}
    assert set(rig.drop_reasons) == {"memory"}
    assert rig.cache.reclaim.moves.left_to_disk == 0


@pytest.mark.parametrize("host_cells", [0, 200])
@pytest.mark.parametrize("cut", [1, 7, 8, 9, 64, 99])
def test_restored_to_the_host_or_past_it(tmp_path: Path, cut: int, host_cells: int) -> None:
    rig = Rig(disk=tmp_path)
    rig.ask(prompt(100), anchors=(cut,), save_tip=False)
    rig.settle()
    rig.kill()
    again = Rig(disk=tmp_path, host_cells=host_cells, life="d")
    request = again.ask(prompt(100), "b", max_tokens=7)
    started = again.started(request)
    assert started.source is not None
    assert (started.reused_tokens, started.source.tier) == (cut, Tier.DISK)
    assert again.output(request) == oracle(prompt(100), 7)
    assert (again.cache.pages.host.used > 0) == (host_cells > 0)


def test_pages_that_memory_has_are_not_read(tmp_path: Path) -> None:
    """Two tips share 64 tokens; the second to come back needs but the pages behind them."""
    first = Rig(disk=tmp_path)
    lines = [[*prompt(64), *prompt(32, seed)] for seed in (1, 2)]
    for number, line in enumerate(lines):
        first.ask(line, f"c{number}", anchors=(96,), save_tip=False)
    first.settle()
    first.kill()
    again = Rig(disk=tmp_path, life="d")
    again.ask([*lines[0], 9], "c0", max_tokens=1, save_tip=False)
    before = tier_of(again).counters.disk_read_bytes
    request = again.ask([*lines[1], 9], "c1", max_tokens=5)
    shape = tier_of(again).shape
    read = tier_of(again).counters.disk_read_bytes - before
    assert read == (4 + shape.image_cells) * shape.cell_bytes
    assert again.output(request) == oracle([*lines[1], 9], 5)


def test_a_page_of_which_memory_has_only_the_beginning_is_read(tmp_path: Path) -> None:
    """One page is the tail of the first checkpoint, on the host, and a full page of the second, on disk."""
    rig = Rig(disk=tmp_path)
    rig.ask(prompt(9), anchors=(3, 8), max_tokens=1, save_tip=False)
    rig.settle()
    store = rig.cache.checkpoints
    early, late = sorted(store.all.values(), key=lambda each: each.position)
    assert early.pages == late.pages
    store.demote(early)
    store.settle_on_disk(late)
    request = rig.ask([*prompt(8), 50, 60], "b", max_tokens=6)
    assert rig.started(request).reused_tokens == 8
    assert rig.output(request) == oracle([*prompt(8), 50, 60], 6)


class TestWriting:
    def test_a_page_is_stored_once_whoever_needs_it(self, tmp_path: Path) -> None:
        rig, head = Rig(disk=tmp_path), prompt(64)
        for number in range(3):
            tokens = [*head, *prompt(24, number + 1)]
            rig.ask(tokens, f"c{number}", anchors=(64, 88), save_tip=False)
        rig.settle()
        pages = tier_of(rig).pages.values()
        assert sorted(page.holders for page in pages) == [1] * 9 + [4] * 8
        assert set(rig.files.sizes(Kind.PAGE)) == {page.name for page in pages}
        assert len(rig.files.sizes(Kind.STATE)) == 4

    def test_only_what_is_missing_is_written(self, tmp_path: Path) -> None:
        rig = Rig(disk=tmp_path)
        rig.ask(prompt(100), anchors=(80,), save_tip=False)
        rig.settle()
        counters, shape = tier_of(rig).counters, tier_of(rig).shape
        before = counters.disk_written_bytes
        rig.ask(prompt(100), anchors=(96,), save_tip=False)
        rig.settle()
        written = counters.disk_written_bytes - before
        assert (
            written < 2 * shape.page_file_bytes + (shape.image_cells + 1) * shape.cell_bytes + 2000
        )

    def test_tips_of_the_idle_first_the_busy_last(self, tmp_path: Path) -> None:
        rig = Rig(disk=tmp_path, disk_jobs=0)
        rig.submit(prompt(30, 3), "busy", anchors=(20,), max_tokens=200, priority=9)
        asked = [
            rig.submit(prompt(60, seed), name, anchors=(30,), priority=seed, max_tokens=2)
            for seed, name in ((1, "low"), (2, "high"))
        ]
        while any(request in rig.loop.turns for request in asked):
            rig.step()
        # What was begun before they were done is of no interest.
        for each in rig.cache.checkpoints.all.values():
            rig.cache.checkpoints.give_up_copy(each)
        order: list[tuple[str, int]] = []
        while len(order) < 5:
            rig.work(1)
            rig.step()
            order += sorted(on_disk(rig) - set(order))
        assert order == [("high", 63), ("low", 63), ("high", 30), ("low", 30), ("busy", 20)]

    def test_the_expendable_is_not_written(self, tmp_path: Path) -> None:
        rig = Rig(disk=tmp_path, disk_jobs=0)
        rig.ask(prompt(20, 7), "written meanwhile")
        rig.ask(prompt(60), anchors=(30,))
        (spare,) = [info for at, info in rig.checkpoints("a").items() if at == 30]
        rig.retain(Retention(ContinuationId("a"), 1, rig.now, None, (spare.checkpoint,)))
        rig.disk_jobs = 1000
        rig.settle()
        assert on_disk(rig) == {("written meanwhile", 25), ("a", 65)}

    def test_what_is_dropped_leaves_no_file(self, tmp_path: Path) -> None:
        rig = Rig(disk=tmp_path)
        for number in range(3):
            rig.ask(prompt(90, number), f"c{number}", anchors=(30, 60))
        rig.settle()
        assert len(rig.files.sizes(Kind.LABELS)) == 9
        for number in range(3):
            rig.drop(f"c{number}")
        rig.settle()
        assert not any(rig.files.sizes(kind) for kind in Kind)
        assert tier_of(rig).used_bytes == 0

    def test_dropped_while_it_is_being_written(self, tmp_path: Path) -> None:
        rig = Rig(disk=tmp_path, disk_jobs=0)
        rig.ask(prompt(90))
        rig.step()
        assert tier_of(rig).copies
        rig.drop("a")
        rig.step()
        assert not tier_of(rig).copies
        rig.disk_jobs = 1000
        rig.settle()
        assert not any(rig.files.sizes(kind) for kind in Kind)

    def test_state_computed_again_is_in_memory_again(self, tmp_path: Path) -> None:
        """The prompt's end is no place to resume for the same prompt; computing up to it makes it one for the next turn."""
        rig = small(tmp_path)
        rig.ask(prompt(100), anchors=(100,), save_tip=False, max_tokens=1)
        rig.settle()
        rig.ask(prompt(180, 1), "b", save_tip=False)
        assert tiers(rig, "a") == {Tier.DISK}
        rig.ask(prompt(100), anchors=(100,), save_tip=False, max_tokens=1)
        assert tiers(rig, "a") == {Tier.DEVICE}
        request = rig.ask([*prompt(100), 8, 9])
        assert rig.started(request).reused_tokens == 100
        assert rig.output(request) == oracle([*prompt(100), 8, 9], 4)


class TestLimit:
    def sized(self, disk: Path, count: int, **options: Any) -> Rig:
        """Room on disk for `count` tips of 100 tokens."""
        probe = Rig(disk=disk / "probe")
        probe.ask(prompt(100))
        probe.settle()
        return small(disk, disk_bytes=count * tier_of(probe).used_bytes, **options)

    def test_the_least_worthy_goes_first_and_is_told(self, tmp_path: Path) -> None:
        rig = self.sized(tmp_path, 3)
        for number, priority in enumerate((5, 1, 4, 3, 2, 6)):
            rig.ask(prompt(100, number), f"c{number}", priority=priority)
            rig.settle()
            assert tier_of(rig).used_bytes <= tier_of(rig).limit_bytes
        assert {name for name, _ in on_disk(rig)} == {"c0", "c2", "c5"}
        gone = zip(rig.dropped, rig.drop_reasons, strict=True)
        told = {(info.continuation, info.tier, why) for info, why in gone}
        assert ("c1", Tier.DISK, "disk limit") in told
        assert all(why == "disk limit" or tier is not Tier.DISK for _, tier, why in told)

    def test_a_copy_of_what_is_in_memory_goes_without_loss(self, tmp_path: Path) -> None:
        rig = self.sized(tmp_path, 2, device_cells=200)
        for number in range(4):
            rig.ask(prompt(100, number), f"c{number}")
            rig.settle()
        assert {name for name, _ in on_disk(rig)} == {"c2", "c3"}
        assert not rig.dropped
        assert tiers(rig, "c0") == {Tier.DEVICE}

    def test_what_is_too_large_for_it_keeps_nothing_else_out(self, tmp_path: Path) -> None:
        rig = self.sized(tmp_path, 1, device_cells=200)
        rig.ask(prompt(190, 1), "large", priority=9, max_tokens=1)
        rig.ask(prompt(60, 2), "little", priority=1)
        rig.settle()
        assert {name for name, _ in on_disk(rig)} == {"little"}

    def test_a_lower_limit_holds_after_a_restart(self, tmp_path: Path) -> None:
        rig = Rig(disk=tmp_path)
        for number, priority in enumerate((3, 1, 2)):
            rig.ask(prompt(100, number), f"c{number}", priority=priority)
        rig.settle()
        limit = tier_of(rig).used_bytes // 3
        rig.kill()
        again = Rig(disk=tmp_path, disk_bytes=limit, life="d")
        assert {name for name, _ in on_disk(again)} == {"c0"}
        assert tier_of(again).used_bytes <= limit
        again.settle()
        assert {info.continuation for info in again.dropped} == {"c1", "c2"}
        assert len(again.files.sizes(Kind.STATE)) == 1


class TestRestart:
    def test_continuations_are_found_with_their_labels(self, tmp_path: Path) -> None:
        rig = Rig(disk=tmp_path)
        first = rig.ask(prompt(100), anchors=(40, 64), pinned_until=5000.0)
        rig.settle()
        line, before = rig.line(prompt(100), first), rig.checkpoints("a")
        retention = rig.cache.reclaim.retentions[ContinuationId("a")]
        rig.kill()
        again = Rig(disk=tmp_path, life="d")
        after = again.checkpoints("a")
        assert {at: (info.checkpoint, info.kind) for at, info in after.items()} == {
            at: (info.checkpoint, info.kind) for at, info in before.items()
        }
        assert {info.tier for info in after.values()} == {Tier.DISK}
        assert again.cache.reclaim.retentions[ContinuationId("a")] == retention
        request = again.ask([*line, 50, 60], max_tokens=5)
        assert again.started(request).reused_tokens == len(line)
        assert again.output(request) == oracle([*line, 50, 60], 5)
        names = [info.checkpoint for info in again.checkpoints("a").values()]
        assert len(set(names)) == len(names) == len(after) + 1

    def test_again_and_again(self, tmp_path: Path) -> None:
        tokens = prompt(50)
        for life in "defgh":
            rig = Rig(disk=tmp_path, life=life)
            request = rig.ask(tokens, max_tokens=6)
            assert rig.output(request) == oracle(tokens, 6)
            assert rig.started(request).reused_tokens == (0 if life == "d" else len(tokens) - 5)
            tokens = [*rig.line(tokens, request), *prompt(5, ord(life))]
            rig.settle()
            rig.kill()

    def test_labels_are_those_of_the_end(self, tmp_path: Path) -> None:
        rig = Rig(disk=tmp_path)
        rig.ask(prompt(64), "a", anchors=(64,), save_tip=False)
        rig.settle()
        for name in ("b", "c"):
            rig.ask([*prompt(64), 7, 8], name, anchors=(64,), save_tip=False)
        rig.drop("a")
        rig.settle()
        rig.kill()
        again = Rig(disk=tmp_path, life="d")
        assert not again.checkpoints("a")
        assert again.checkpoints("b").keys() == again.checkpoints("c").keys() == {64}

    def test_tenants_stay_apart(self, tmp_path: Path) -> None:
        rig = Rig(disk=tmp_path)
        for tenant in ("t", "u"):
            rig.ask(prompt(80), tenant, tenant=tenant, anchors=(64,), save_tip=False)
        rig.settle()
        assert len(rig.files.sizes(Kind.PAGE)) == 16
        rig.kill()
        again = Rig(disk=tmp_path, life="d")
        assert again.started(again.ask(prompt(80), "x", tenant="v")).matched_tokens == 0
        assert again.started(again.ask(prompt(80), "y", tenant="u")).reused_tokens == 64

    def test_another_identity_finds_nothing_and_touches_nothing(self, tmp_path: Path) -> None:
        first, _ = asleep(tmp_path, 2)
        first.kill()
        other = Rig(disk=tmp_path, weights="other")
        request = other.ask(prompt(100), "c0")
        assert other.started(request).reason is ResumeReason.NOTHING_STORED
        other.settle()
        other.kill()
        again = Rig(disk=tmp_path, life="e")
        assert {name for name, _ in on_disk(again)} == {"c0", "c1"}
        assert tier_of(again).counters.disk_files_set_aside == 0


class TestQueue:
    def test_a_disk_that_does_nothing_holds_up_nobody_else(self, tmp_path: Path) -> None:
        rig, (line, *_) = asleep(tmp_path, 1, disk_jobs=0)
        stuck = rig.submit([*line, 3, 4], "c0", max_tokens=4)
        other = rig.submit(prompt(70, 8), "other", max_tokens=40)
        for _ in range(60):
            rig.step()
        assert rig.output(other) == oracle(prompt(70, 8), 40)
        assert not rig.events[stuck]
        snapshot = rig.snapshot()
        assert (snapshot.waiting, snapshot.restoring) == (1, 1)
        assert rig.scheduler.is_asleep
        rig.disk_jobs = 1
        rig.run()
        assert rig.output(stuck) == oracle([*line, 3, 4], 4)

    def test_several_come_back_one_after_another(self, tmp_path: Path) -> None:
        rig, lines = asleep(tmp_path, 5, lanes=2, disk_jobs=1)
        requests = [rig.submit([*line, 3, 4], f"c{n}") for n, line in enumerate(lines)]
        rig.run()
        for line, request in zip(lines, requests, strict=True):
            assert rig.started(request).reused_tokens == len(line)
            assert rig.output(request) == oracle([*line, 3, 4], 4)

    def test_brought_up_while_all_lanes_are_taken(self, tmp_path: Path) -> None:
        rig, (line, *_) = asleep(tmp_path, 1, lanes=1)
        rig.submit(prompt(60, 4), "running", max_tokens=50)
        rig.step()
        waiting = rig.submit([*line, 3, 4], "c0")
        for _ in range(5):
            rig.step()
        assert tiers(rig, "c0") == {Tier.HOST}
        rig.run()
        started = rig.started(waiting)
        assert started.source is not None
        assert started.source.tier is Tier.DISK

    def test_what_is_waited_for_stays_on_the_host(self, tmp_path: Path) -> None:
        """Though the host is full of it, and what runs is worth more."""
        rig, (line, *_) = asleep(tmp_path, 1, lanes=1, device_cells=32, host_cells=20, context=200)
        running = rig.submit(
            prompt(60, 4), "running", anchors=(10, 20, 30, 40), max_tokens=50, priority=9
        )
        rig.step()
        waiting = rig.submit([*line, 3, 4], "c0")
        while running in rig.loop.turns:
            rig.step()
        assert tiers(rig, "c0") == {Tier.HOST}
        assert rig.cache.reclaim.moves.left_to_disk > 0
        rig.run()
        assert tier_of(rig).counters.disk_checkpoints_restored == 1
        assert rig.started(waiting).reused_tokens == len(line)

    def test_what_is_waited_for_stays_on_disk(self, tmp_path: Path) -> None:
        """Though its room is wanted for what is worth more."""
        rig, (line, *_) = asleep(tmp_path, 1, disk_jobs=0)
        tier_of(rig).limit_bytes = tier_of(rig).used_bytes
        waiting = rig.submit([*line, 3, 4], "c0", priority=0)
        rig.submit(prompt(50, 8), "other", priority=9)
        for _ in range(20):
            rig.step()
        assert tiers(rig, "c0") == {Tier.DISK}
        rig.disk_jobs = 1000
        rig.run()
        assert rig.started(waiting).reused_tokens == len(line)

    @pytest.mark.parametrize("end", ["cancel", "drop"])
    def test_no_longer_wanted_on_the_way(self, tmp_path: Path, end: str) -> None:
        rig, (line, *_) = asleep(tmp_path, 1, disk_jobs=0)
        request = rig.submit([*line, 3, 4], "c0")
        rig.step()
        assert rig.cache.is_restoring
        if end == "cancel":
            rig.cancel(request)
        else:
            rig.drop("c0")
        rig.step()
        rig.disk_jobs = 1000
        rig.settle()
        rig.run()
        assert not rig.cache.is_restoring
        if end == "drop":
            assert rig.started(request).reason is ResumeReason.NOTHING_STORED
            assert rig.output(request) == oracle([*line, 3, 4], 4)

    def test_who_runs_needs_the_device_more(self, tmp_path: Path) -> None:
        """Without a host the state comes straight to the device, and leaves it again for a page of a running sequence."""
        rig, (line, *_) = asleep(
            tmp_path, 1, device_cells=40, host_cells=0, context=200, disk_jobs=0, lanes=2
        )
        running = rig.submit(prompt(110, 8), "running", max_tokens=80, save_tip=False)
        rig.step()
        rig.step()
        waiting = rig.submit([*line, 3, 4], "c0")
        rig.step()
        assert rig.cache.is_restoring
        while running in rig.loop.turns:
            rig.step()
        assert rig.output(running) == oracle(prompt(110, 8), 80)
        assert rig.scheduler.counters.preemptions == 0
        rig.disk_jobs = 1000
        rig.run()
        assert rig.started(waiting).reused_tokens == len(line)
        assert rig.output(waiting) == oracle([*line, 3, 4], 4)

    def test_without_room_for_it_the_prompt_is_computed(self, tmp_path: Path) -> None:
        """What is pinned leaves room for the prompt, but not for its image beside it."""
        rig, (line, *_) = asleep(
            tmp_path, 1, device_cells=40, host_cells=0, context=200, lanes=1, disk_jobs=1000
        )
        for each in rig.cache.checkpoints.all.values():
            assert each.on_disk
        tier_of(rig).limit_bytes = 0
        rig.ask(prompt(130, 8), "pinned", pinned_until=1e9, max_tokens=1)
        request = rig.ask([*line, 3, 4], "c0")
        assert rig.started(request).reason is ResumeReason.STATE_REJECTED
        assert rig.started(request).source is None
        assert rig.output(request) == oracle([*line, 3, 4], 4)


def test_pins_don_t_bind_what_the_disk_has(tmp_path: Path) -> None:
    rig = small(tmp_path, lanes=1)
    first = rig.ask(prompt(150, 1), "pinned", pinned_until=1e9)
    rig.settle()
    request: RequestId = rig.ask(prompt(180, 2), "other")
    assert not isinstance(rig.end(request), Rejected)
    assert tiers(rig, "pinned") == {Tier.DISK}
    line = rig.line(prompt(150, 1), first)
    again = rig.ask([*line, 20], "pinned")
    assert rig.started(again).reused_tokens == len(line)
    assert rig.output(again) == oracle([*line, 20], 4)


def test_bytes_of_what_is_on_disk(tmp_path: Path) -> None:
    rig, _ = asleep(tmp_path, 1)
    (info,) = rig.checkpoints("c0").values()
    usage = {each.tier: each for each in rig.snapshot().tiers}
    assert info.bytes == usage[Tier.DISK].used_bytes > 0
    assert usage[Tier.DISK].note == ""
    assert usage[Tier.HOST].used_bytes == 0
