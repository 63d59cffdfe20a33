"""What lies in the disk tier's directory and is no file of it: directories, links, pipes, files in each other's place. It goes out of the way."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.cache.disk_files import KEPT_ASIDE, MANIFEST, SET_ASIDE, Kind
from engine.cache.disk_tier import RETRY_S
from tests.engine.fake_model import oracle
from tests.engine.rig import Rig
from tests.engine.test_disk import on_disk, prompt, tier_of
from tests.engine.test_disk_faults import disk_usage, written

NAME = "0" * 32
Put = Callable[[Path], object]

THINGS: dict[str, Put] = {
    "directory": lambda folder: (folder / NAME / "deep").mkdir(parents=True),
    "unfinished directory": lambda folder: (folder / "x.tmp").mkdir(),
    "dangling link": lambda folder: (folder / NAME).symlink_to("nowhere"),
    "link to itself": lambda folder: (folder / NAME).symlink_to(NAME),
    "link to elsewhere": lambda folder: (folder / NAME).symlink_to(os.devnull),
    "pipe": lambda folder: os.mkfifo(folder / NAME),
    "name that is no text": lambda folder: (folder / os.fsdecode(b"\xff")).write_bytes(b""),
}
PLACES: dict[str, Put] = {
    "manifest": lambda tier: ((tier / MANIFEST).unlink(), (tier / MANIFEST).mkdir()),
    "lock": lambda tier: ((tier / "lock").unlink(), (tier / "lock").mkdir()),
    "set-aside": lambda tier: (shutil.rmtree(tier / SET_ASIDE), (tier / SET_ASIDE).write_text("")),
}


def verify_found(disk: Path, line: list[int]) -> Rig:
    """The tier opens, and goes on from what it had."""
    rig = Rig(disk=disk, life="d")
    assert disk_usage(rig).note == ""
    request = rig.ask([*line, 5, 6], max_tokens=6)
    assert rig.started(request).reused_tokens == len(line)
    assert rig.output(request) == oracle([*line, 5, 6], 6)
    rig.settle()
    return rig


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("thing", THINGS)
def test_among_the_files(tmp_path: Path, thing: str, kind: Kind) -> None:
    directory, line = written(tmp_path)
    THINGS[thing](directory / kind)
    rig = verify_found(tmp_path, line)
    assert len(list((directory / SET_ASIDE).iterdir())) == 1
    rig.drop("a")
    rig.settle()
    assert not any(rig.files.sizes(each) for each in Kind)


@pytest.mark.parametrize("place", PLACES)
def test_in_the_place_of_something_of_ours(tmp_path: Path, place: str) -> None:
    directory, line = written(tmp_path)
    PLACES[place](directory)
    verify_found(tmp_path, line)


@pytest.mark.parametrize("kind", list(Kind))
def test_a_file_in_the_place_of_a_folder(tmp_path: Path, kind: Kind) -> None:
    directory, line = written(tmp_path)
    shutil.rmtree(directory / kind)
    (directory / kind).write_text("a file, no folder")
    rig = Rig(disk=tmp_path, life="d")
    assert disk_usage(rig).note == ""
    assert rig.output(rig.ask(line)) == oracle(line, 4)
    rig.settle()
    assert {name for name, _ in on_disk(rig)} == {"a"}
    assert (directory / SET_ASIDE / kind).is_file()


@pytest.mark.parametrize("kind", list(Kind))
def test_a_folder_that_vanishes_takes_all_with_it_and_comes_back(
    tmp_path: Path, kind: Kind
) -> None:
    directory, line = written(tmp_path)
    rig = Rig(disk=tmp_path, life="d")
    shutil.rmtree(directory / kind)
    for number in range(2):
        request = rig.ask([*line, 5, 6 + number], "b", max_tokens=6)
        assert rig.output(request) == oracle([*line, 5, 6 + number], 6)
        rig.settle()
    assert disk_usage(rig).note == "not written to: its directory has vanished"
    rig.now += RETRY_S
    rig.settle()
    assert disk_usage(rig).note == ""
    assert {name for name, _ in on_disk(rig)} >= {"b"}


@pytest.mark.parametrize("kind", list(Kind))
def test_files_that_took_each_others_place(tmp_path: Path, kind: Kind) -> None:
    """Whole and proved by their checksums, but not what their names say: never taken for it."""
    first = Rig(disk=tmp_path)
    lines = {}
    for name, seed in (("a", 0), ("b", 1)):
        lines[name] = first.line(prompt(100, seed), first.ask(prompt(100, seed), name))
    first.settle()
    first.kill()
    one, other = sorted((first.files.directory / kind).iterdir())[:2]
    contents = one.read_bytes(), other.read_bytes()
    assert contents[0] != contents[1]
    for path, data in zip((other, one), contents, strict=True):
        path.write_bytes(data)
    rig = Rig(disk=tmp_path, life="d")
    for name, line in lines.items():
        asked = [*line, 5, 6]
        assert rig.output(rig.ask(asked, name, max_tokens=6)) == oracle(asked, 6)
    assert tier_of(rig).counters.disk_files_set_aside > 0
    for name in lines:
        rig.drop(name)
    rig.settle()
    assert not any(rig.files.sizes(each) for each in Kind)


def test_directories_are_not_kept_aside_for_ever(tmp_path: Path) -> None:
    rig = Rig(disk=tmp_path)
    for number in range(KEPT_ASIDE + 5):
        name = f"{number % 19:032}"
        (rig.files.path(Kind.PAGE, name) / "deep").mkdir(parents=True)
        rig.files.set_aside(Kind.PAGE, name)
    assert len(list((rig.files.directory / SET_ASIDE).iterdir())) == KEPT_ASIDE
    assert tier_of(rig).opened
