"""The check of all accounts: it holds whatever is done, and whatever account is falsified, it says which."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from engine.api import ContinuationId, Retention, Tier
from engine.cache import disk_files
from engine.cache.checkpoints import Checkpoint
from engine.cache.disk_files import Kind
from engine.cache.integrity import check
from engine.cache.pages import Page
from tests.engine.rig import Rig
from tests.engine.test_disk import prompt, tier_of


@pytest.fixture
def busy(tmp_path: Path) -> Rig:
    """A request that runs, and checkpoints on the device, the host and the disk."""
    rig = Rig(device_cells=46, host_cells=30, lanes=2, context=200, disk=tmp_path)
    for number in range(5):
        rig.ask(prompt(90, number), f"c{number}", anchors=(40,))
        rig.settle()
    rig.submit(prompt(50, 7), "d", anchors=(20,), max_tokens=50)
    rig.step()
    assert {each.tier for each in rig.cache.checkpoints.all.values()} == set(Tier)
    check(rig.cache, rig.scheduler.running)
    return rig


def lane_page(rig: Rig) -> Page:
    return rig.cache.lanes.pages[next(iter(rig.scheduler.running))][0]


def checkpoint(rig: Rig, tier: Tier) -> Checkpoint:
    return next(each for each in rig.cache.checkpoints.all.values() if each.tier is tier)


def a_copy(rig: Rig) -> Any:
    return next(iter(tier_of(rig).copies.values()))


def misname(rig: Rig) -> None:
    """One label has the name of another of its continuation."""
    store = rig.cache.checkpoints
    known = next(known for known in store.of.values() if len(known) > 1)
    first, second = list(known)[:2]
    known[first] = known[second]


def swap_keys(rig: Rig) -> None:
    one, other = checkpoint(rig, Tier.DISK), checkpoint(rig, Tier.HOST)
    one.key, other.key = other.key, one.key


DAMAGES: list[tuple[str, Callable[[Rig], object]]] = [
    ("lanes", lambda rig: rig.cache.lanes.take()),
    ("page table of lane", lambda rig: rig.cache.lanes.tables.add_(1)),
    ("count of pages in lanes", lambda rig: setattr(rig.cache.pages, "in_lanes", 1)),
    ("cells of tier device", lambda rig: rig.cache.pages.device.allocate(1)),
    ("cells of tier host", lambda rig: rig.cache.pages.host.allocate(1)),
    ("cells of tier device", lambda rig: rig.cache.pages.device.release([0])),
    ("holders of a page", lambda rig: setattr(lane_page(rig), "lanes", 2)),
    ("holders of a page", lambda rig: setattr(checkpoint(rig, Tier.HOST).pages[0], "host", 9)),
    ("holders of a page", lambda rig: setattr(checkpoint(rig, Tier.DEVICE).pages[0], "device", 9)),
    ("host cell", lambda rig: setattr(lane_page(rig), "host_cell", 3)),
    ("device cell", lambda rig: setattr(checkpoint(rig, Tier.HOST).pages[0], "device_cell", 3)),
    ("host copy", lambda rig: setattr(checkpoint(rig, Tier.HOST).pages[0], "host_tokens", 0)),
    ("prefix index", lambda rig: rig.cache.checkpoints.all.pop(checkpoint(rig, Tier.DISK).key)),
    ("prefix index", lambda rig: rig.cache.index.remove(checkpoint(rig, Tier.DISK))),
    ("key of a checkpoint", swap_keys),
    ("without a label", lambda rig: checkpoint(rig, Tier.DISK).labels.clear()),
    ("pages of a checkpoint", lambda rig: setattr(checkpoint(rig, Tier.HOST), "position", 1)),
    ("that is nowhere", lambda rig: setattr(checkpoint(rig, Tier.DISK).copy, "complete", False)),
    ("label", misname),
    ("label", lambda rig: rig.cache.checkpoints.of.popitem()),
    ("order of tier", lambda rig: rig.cache.reclaim.ranking._orders[Tier.HOST].reverse()),
    ("copies", lambda rig: tier_of(rig).copies.popitem()),
    ("copies", lambda rig: setattr(checkpoint(rig, Tier.HOST), "copy", None)),
    ("holders on disk", lambda rig: setattr(a_copy(rig).pages[0], "holders", 9)),
    ("an unwritten page", lambda rig: setattr(a_copy(rig).pages[0], "written", False)),
    ("bytes on disk", lambda rig: setattr(tier_of(rig), "used_bytes", 1)),
    ("files in pages", lambda rig: rig.files.remove(Kind.PAGE, a_copy(rig).names.pages[0])),
    ("files in states", lambda rig: rig.files.remove(Kind.STATE, a_copy(rig).names.state)),
    ("files in labels", lambda rig: rig.files.path(Kind.LABELS, "0" * 32).write_bytes(b"")),
    ("a foreign file", lambda rig: rig.files.path(Kind.LABELS, "README").write_bytes(b"")),
]


@pytest.mark.parametrize(("account", "damage"), DAMAGES)
def test_the_account_that_is_wrong_is_named(
    busy: Rig, account: str, damage: Callable[[Rig], object]
) -> None:
    damage(busy)
    with pytest.raises(AssertionError, match=account):
        check(busy.cache, busy.scheduler.running)


def test_the_check_looks_on_while_a_file_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two glances of the check the disk's thread goes on: what was unfinished is there under its name."""
    rig = Rig(disk=tmp_path, disk_jobs=0)
    rig.ask(prompt(100))
    unfinished = rig.files.path(Kind.PAGE, "0" * 32 + disk_files.UNFINISHED)
    unfinished.write_bytes(b"half")
    scan = os.scandir

    def scan_then_go_on(path: Path) -> nullcontext[Iterator[os.DirEntry[str]]]:
        entries = list(scan(path))
        unfinished.unlink(missing_ok=True)
        return nullcontext(iter(entries))

    monkeypatch.setattr(os, "scandir", scan_then_go_on)
    rig.step()


def test_the_check_looks_on_while_the_directory_vanishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(disk=tmp_path)
    rig.ask(prompt(100))
    names = rig.files.names

    def vanish_then_list(kind: Kind) -> set[str]:
        shutil.rmtree(rig.files.directory, ignore_errors=True)
        return names(kind)

    monkeypatch.setattr(rig.files, "names", vanish_then_list)
    rig.step()


def test_nothing_is_kept_of_what_has_gone(tmp_path: Path) -> None:
    """Hundreds of continuations come and go: no list of the engine is longer afterwards."""
    rig = Rig(device_cells=60, host_cells=30, lanes=2, context=200, disk=tmp_path)
    for number in range(120):
        name = f"c{number}"
        request = rig.submit(prompt(60, number), name, anchors=(30,), max_tokens=6)
        if number % 3 == 0:
            rig.step()
            rig.cancel(request)
        rig.run()
        rig.retain(Retention(ContinuationId(name), 1, rig.now, rig.now + 1))
        rig.drop(name)
    rig.settle()
    tier, store = tier_of(rig), rig.cache.checkpoints
    kept = (
        *(
            rig.loop.turns,
            rig.scheduler.waiting,
            rig.scheduler.running,
            rig.scheduler.following._leads,
        ),
        *(store.all, store.of, store.relabelled, rig.cache.index.entries()),
        *(rig.cache.reclaim.retentions, rig.cache.reclaim.ranking._of, rig.cache.reclaim._dropped),
        *(tier.pages, tier.copies, tier.moving, tier.worker._outcomes),
    )
    assert [len(each) for each in kept] == [0] * len(kept)
    assert not any(rig.files.sizes(kind) for kind in Kind)
