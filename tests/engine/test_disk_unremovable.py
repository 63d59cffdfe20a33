"""Files of the disk tier that can't be removed when they should be: they go as soon as they can, and stop nothing else."""

from errno import EPERM, EROFS
from pathlib import Path

import pytest

from engine.cache.disk_files import Kind
from engine.cache.disk_tier import RETRY_S
from tests.engine.rig import Rig
from tests.engine.test_disk import on_disk, prompt, tier_of
from tests.engine.test_disk_faults import disk_usage


def test_what_could_not_be_removed_goes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(disk=tmp_path)
    rig.ask(prompt(100), "gone", anchors=(40,))
    rig.settle()
    rig.kill()
    rig = Rig(disk=tmp_path, life="d")

    def refuse(*_: object) -> None:
        raise OSError(EROFS, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(rig.files, "remove", refuse)
        patch.setattr(rig.files, "write", refuse)
        rig.drop("gone")
        rig.settle()
        rig.ask(prompt(100)[:60], "again", anchors=(40,))
        rig.settle()
        assert disk_usage(rig).note == "not written to: Read-only file system"
        assert len(rig.files.sizes(Kind.STATE)) == 2
    rig.now += RETRY_S
    rig.settle()
    assert disk_usage(rig).note == ""
    assert on_disk(rig) == {("again", 40), ("again", 65)}
    assert len(rig.files.sizes(Kind.STATE)) == len(rig.files.sizes(Kind.LABELS)) == 2
    assert rig.files.sizes(Kind.PAGE).keys() == tier_of(rig).pages.keys()


def test_what_can_never_be_removed_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(disk=tmp_path)
    rig.loop.check_integrity = False
    rig.ask(prompt(100), "gone")
    rig.settle()

    def refuse(*_: object) -> None:
        raise OSError(EPERM, "Operation not permitted")

    monkeypatch.setattr(rig.files, "remove", refuse)
    rig.drop("gone")
    rig.settle()
    for number in range(3):
        rig.now += RETRY_S
        rig.ask(prompt(100, number + 1), f"c{number}")
        rig.settle()
    assert {name for name, _ in on_disk(rig)} == {"c0", "c1", "c2"}
    assert disk_usage(rig).note == ""
    assert caplog.text.count("stay until a restart") == 1
