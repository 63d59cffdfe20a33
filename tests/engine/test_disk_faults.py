"""What the disk tier does when the disk fails: damaged, foreign, full, unwritable, gone, in use. Requests are never harmed."""

import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from errno import ENOSPC
from pathlib import Path

import pytest

from engine.api import ResumeReason, Tier, TierUsage
from engine.cache import disk_files
from engine.cache.disk_files import Kind
from engine.cache.disk_tier import RETRY_S
from engine.cache.restore import STALL_S
from tests.engine.fake_model import oracle
from tests.engine.rig import Rig
from tests.engine.test_disk import on_disk, prompt, tier_of


def written(disk: Path, anchors: tuple[int, ...] = (40,)) -> tuple[Path, list[int]]:
    """A directory with one continuation, and its line up to the tip."""
    rig = Rig(disk=disk)
    line = rig.line(prompt(100), rig.ask(prompt(100), anchors=anchors))
    rig.settle()
    rig.kill()
    return rig.files.directory, line


def state_of(rig: Rig, position: int) -> str:
    (name,) = [
        each.copy.names.state
        for each in rig.cache.checkpoints.all.values()
        if each.copy is not None and each.position == position
    ]
    return name


def disk_usage(rig: Rig) -> TierUsage:
    return next(usage for usage in rig.snapshot().tiers if usage.tier is Tier.DISK)


def aside(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / disk_files.SET_ASIDE).iterdir())


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


class TestDamage:
    @pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.6, 0.999])
    def test_a_damaged_state_is_done_without(self, tmp_path: Path, share: float) -> None:
        """The damage comes after the start, which reads heads only."""
        directory, line = written(tmp_path)
        rig = Rig(disk=tmp_path, life="d")
        path = rig.files.path(Kind.STATE, state_of(rig, len(line)))
        flip(path, int(path.stat().st_size * share))
        request = rig.ask([*line, 5, 6], max_tokens=6)
        started = rig.started(request)
        assert (started.reason, started.reused_tokens) == (ResumeReason.STATE_REJECTED, 40)
        assert rig.output(request) == oracle([*line, 5, 6], 6)
        assert aside(directory) == [f"states-{path.name}"]
        assert tier_of(rig).counters.disk_files_set_aside == 1
        assert rig.drop_reasons == ["damaged"]
        assert rig.dropped[0].tier is Tier.DISK

    @pytest.mark.parametrize("damage", ["flip", "cut", "empty", "remove", "swap", "directory"])
    def test_a_damaged_page_takes_all_that_need_it(self, tmp_path: Path, damage: str) -> None:
        """Page 5 lies behind the first checkpoint and before the tip."""
        directory, line = written(tmp_path)
        rig = Rig(disk=tmp_path, life="d")
        tip = next(e for e in rig.cache.checkpoints.all.values() if e.position == len(line))
        assert tip.copy is not None
        path, other = (rig.files.path(Kind.PAGE, tip.copy.names.pages[n]) for n in (6, 7))
        if damage == "flip":
            flip(path, path.stat().st_size - 9)
        elif damage == "cut":
            path.write_bytes(path.read_bytes()[:-8])
        elif damage == "empty":
            path.write_bytes(b"")
        elif damage == "swap":
            shutil.copy(other, path)
        else:
            path.unlink()
            if damage == "directory":
                path.mkdir()
        request = rig.ask([*line, 5, 6], max_tokens=6)
        started = rig.started(request)
        assert (started.reason, started.reused_tokens) == (ResumeReason.STATE_REJECTED, 40)
        assert rig.output(request) == oracle([*line, 5, 6], 6)
        expected = [] if damage == "remove" else [f"pages-{path.name}"]
        assert aside(directory) == expected
        rig.settle()
        assert on_disk(rig) >= {("a", 40)}

    def test_what_memory_has_too_is_written_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _, line = written(tmp_path)
        rig = Rig(disk=tmp_path, life="d")
        rig.ask(prompt(60), "b", save_tip=False)
        assert rig.checkpoints("a")[40].tier is Tier.HOST
        name = next(name for name, page in tier_of(rig).pages.items() if page.holders == 2)
        path = rig.files.path(Kind.PAGE, name)
        sound = path.read_bytes()
        flip(path, len(sound) - 1)
        monkeypatch.setattr(rig.cache.checkpoints, "shareable", lambda *_: [None] * 13)
        request = rig.ask([*line, 3, 4], "c", max_tokens=6)
        started = rig.started(request)
        assert (started.reason, started.reused_tokens) == (ResumeReason.STATE_REJECTED, 40)
        assert rig.output(request) == oracle([*line, 3, 4], 6)
        rig.settle()
        assert ("a", 40) in on_disk(rig)
        assert path.read_bytes() == sound

    def test_everything_damaged_is_a_cold_prefill(self, tmp_path: Path) -> None:
        directory, line = written(tmp_path)
        rig = Rig(disk=tmp_path, life="d")
        for path in (directory / "states").iterdir():
            flip(path, path.stat().st_size - 1)
        request = rig.ask([*line, 5, 6], max_tokens=6)
        started = rig.started(request)
        assert (started.reason, started.reused_tokens) == (ResumeReason.STATE_REJECTED, 0)
        assert rig.output(request) == oracle([*line, 5, 6], 6)
        after = rig.ask([*line, 5, 7], max_tokens=6)
        assert rig.started(after).reason is not ResumeReason.STATE_REJECTED

    def test_only_the_latest_are_kept_aside(self, tmp_path: Path) -> None:
        rig = Rig(disk=tmp_path)
        for number in range(disk_files.KEPT_ASIDE + 5):
            rig.files.path(Kind.PAGE, f"{number:03}").write_bytes(b"x")
            rig.files.set_aside(Kind.PAGE, f"{number:03}")
        assert len(aside(rig.files.directory)) == disk_files.KEPT_ASIDE


class TestStart:
    def found_after(self, disk: Path) -> tuple[set[int], int]:
        """Positions found at a start, and files set aside."""
        rig = Rig(disk=disk, life="d")
        rig.settle()
        found = {position for _, position in on_disk(rig)}
        set_aside = tier_of(rig).counters.disk_files_set_aside
        rig.kill()
        return found, set_aside

    @pytest.mark.parametrize("kind", list(Kind))
    def test_foreign_files_are_set_aside(self, tmp_path: Path, kind: Kind) -> None:
        directory, _ = written(tmp_path)
        other = Rig(disk=tmp_path, weights="other")
        other.ask(prompt(100, 3))
        other.settle()
        other.kill()
        theirs = next((other.files.directory / kind).iterdir())
        shutil.copy(theirs, directory / kind / theirs.name)
        (directory / kind / "README").write_text("hello")
        found, set_aside = self.found_after(tmp_path)
        assert found == {40, 105}
        # A page of theirs is of the right size: it belongs to nothing here and is removed. So are labels without a state.
        assert set_aside == (2 if kind is Kind.STATE else 1)
        assert not (directory / kind / theirs.name).exists()
        assert f"{kind}-README" in aside(directory)

    @pytest.mark.parametrize("at", [3, 20, 30, 60, 70])
    @pytest.mark.parametrize("kind", [Kind.STATE, Kind.LABELS])
    def test_damaged_heads_are_set_aside(self, tmp_path: Path, kind: Kind, at: int) -> None:
        directory, _ = written(tmp_path)
        for path in (directory / kind).iterdir():
            flip(path, at)
        assert self.found_after(tmp_path) == (set(), 2)
        assert not list((directory / "pages").iterdir())

    def test_a_page_of_the_wrong_size(self, tmp_path: Path) -> None:
        directory, _ = written(tmp_path)
        for path in (directory / "pages").iterdir():
            path.write_bytes(path.read_bytes() + b"x")
        found, set_aside = self.found_after(tmp_path)
        assert found == set()
        assert set_aside == 13

    def test_a_damaged_manifest(self, tmp_path: Path) -> None:
        directory, _ = written(tmp_path)
        manifest = directory / disk_files.MANIFEST
        before = manifest.read_bytes()
        assert b'"page_tokens": 8' in before
        manifest.write_bytes(b"{")
        assert self.found_after(tmp_path) == ({40, 105}, 1)
        assert manifest.read_bytes() == before

    def test_what_a_kill_left_unfinished_is_removed(self, tmp_path: Path) -> None:
        directory, _ = written(tmp_path)
        (directory / "pages" / ("0" * 32 + disk_files.UNFINISHED)).write_bytes(b"half")
        labels = sorted((directory / "labels").iterdir())
        labels[0].unlink()
        found, set_aside = self.found_after(tmp_path)
        assert len(found) == 1
        assert set_aside == 0
        assert not list((directory / "pages").glob("*" + disk_files.UNFINISHED))
        assert len(list((directory / "states").iterdir())) == 1

    def test_one_engine_at_a_time(self, tmp_path: Path) -> None:
        first = Rig(disk=tmp_path)
        line = first.line(prompt(100), first.ask(prompt(100)))
        first.settle()
        second = Rig(disk=tmp_path, life="d")
        assert disk_usage(second).note == "not written to: another engine uses it"
        assert second.output(second.ask(prompt(30), "b")) == oracle(prompt(30), 4)
        assert second.checkpoints("a") == {}
        first.kill()
        second.now += RETRY_S
        second.settle()
        assert disk_usage(second).note == ""
        request = second.ask([*line, 8, 9])
        assert second.started(request).reused_tokens == len(line)
        assert second.output(request) == oracle([*line, 8, 9], 4)

    def test_found_late_beside_equal_state_in_memory(self, tmp_path: Path) -> None:
        first = Rig(disk=tmp_path)
        first.ask(prompt(100), "a", anchors=(40,))
        first.settle()
        second = Rig(disk=tmp_path, life="d")
        second.ask(prompt(100), "b", anchors=(40,))
        first.kill()
        second.now += RETRY_S
        second.settle()
        assert on_disk(second) == {("a", 40), ("b", 40), ("a", 105), ("b", 105)}
        assert second.checkpoints("a")[40].tier is Tier.DEVICE


class TestFull:
    @contextmanager
    def no_space(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        def write(*_: object) -> None:
            raise OSError(ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(rig.files, "write", write)
            yield

    def test_requests_go_on_and_it_is_tried_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        rig = Rig(disk=tmp_path)
        line = rig.line(prompt(100), rig.ask(prompt(100), "before"))
        rig.settle()
        with self.no_space(rig, monkeypatch):
            for number in range(4):
                tokens = prompt(80, number + 1)
                assert rig.output(rig.ask(tokens, f"c{number}")) == oracle(tokens, 4)
                rig.settle()
                rig.now += RETRY_S
            assert disk_usage(rig).note == "not written to: No space left on device"
            assert tier_of(rig).counters.disk_failures == 4
            assert on_disk(rig) == {("before", len(line))}
        assert caplog.text.count("nothing is written to") == 1
        rig.now += RETRY_S
        rig.settle()
        assert disk_usage(rig).note == ""
        assert {name for name, _ in on_disk(rig)} == {"before", "c0", "c1", "c2", "c3"}
        assert caplog.text.count("is written to again") == 1

    def test_what_is_there_is_still_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _, line = written(tmp_path)
        rig = Rig(disk=tmp_path, life="d")
        with self.no_space(rig, monkeypatch):
            rig.ask(prompt(50, 3), "other")
            rig.settle()
            request = rig.ask([*line, 5, 6], max_tokens=6)
        assert rig.started(request).reused_tokens == len(line)
        assert rig.output(request) == oracle([*line, 5, 6], 6)

    def test_a_file_that_may_not_grow(self, tmp_path: Path) -> None:
        """The system's own refusal, in the middle of a state file; nothing half stays."""
        rig = Rig(disk=tmp_path, disk_jobs=0)
        request = rig.ask(prompt(100))
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, hard))
        try:
            for _ in range(10):
                rig.work()
                rig.step()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert rig.output(request) == oracle(prompt(100), 4)
        assert disk_usage(rig).note == "not written to: File too large"
        assert not any(rig.files.sizes(kind) for kind in Kind)

    def test_room_is_left_for_others(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(disk_files, "SPARE_BYTES", 1 << 60)
        rig = Rig(disk=tmp_path)
        rig.ask(prompt(100))
        rig.settle()
        assert "are free there" in disk_usage(rig).note
        assert not on_disk(rig)


class TestGone:
    def test_a_directory_that_vanished(self, tmp_path: Path) -> None:
        _, line = written(tmp_path)
        rig = Rig(disk=tmp_path, life="d")
        shutil.rmtree(tmp_path)
        request = rig.ask([*line, 5, 6], "b", max_tokens=6)
        assert rig.started(request).reason is ResumeReason.STATE_REJECTED
        assert rig.output(request) == oracle([*line, 5, 6], 6)
        assert set(rig.drop_reasons) == {"disk lost"}
        assert disk_usage(rig).note == "not written to: its directory has vanished"
        assert disk_usage(rig).used_bytes == 0
        rig.now += RETRY_S
        rig.settle()
        assert disk_usage(rig).note == ""
        assert {name for name, _ in on_disk(rig)} == {"b"}

    def test_a_disk_that_does_not_answer(self, tmp_path: Path) -> None:
        """It counts as gone; when it answers again, all is found again. What it was asked before that is of no consequence."""
        _, line = written(tmp_path)
        rig = Rig(disk=tmp_path, life="d", disk_jobs=0)
        stuck = rig.submit([*line, 5, 6], "b", max_tokens=6)
        rig.step()
        assert rig.scheduler.is_asleep
        rig.now += STALL_S + 1
        rig.step()
        assert disk_usage(rig).note == "not written to: it does not answer"
        rig.run()
        assert rig.started(stuck).reason is ResumeReason.STATE_REJECTED
        assert rig.output(stuck) == oracle([*line, 5, 6], 6)
        rig.now += RETRY_S
        rig.disk_jobs = 1000
        rig.settle()
        assert ("a", len(line)) in on_disk(rig)
        request = rig.ask([*line, 5, 6], "a", max_tokens=6)
        assert rig.started(request).reason is ResumeReason.RESUMED
        assert rig.output(request) == oracle([*line, 5, 6], 6)

    def test_vanished_in_the_middle_of_writing(self, tmp_path: Path) -> None:
        rig = Rig(disk=tmp_path, disk_jobs=0)
        rig.ask(prompt(100), anchors=(40,))
        rig.work(1)
        rig.step()
        shutil.rmtree(tmp_path)
        rig.disk_jobs = 1000
        rig.settle()
        assert not on_disk(rig)
        rig.now += RETRY_S
        rig.settle()
        assert on_disk(rig) == {("a", 40), ("a", 105)}

    def test_vanished_in_the_middle_of_a_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What the system says then is that a file isn't there; the whole directory isn't, and counts as gone at once."""
        rig = Rig(disk=tmp_path)
        rig.ask(prompt(100), "before")
        rig.settle()
        write = rig.files.write

        def vanish_then_write(kind: Kind, name: str, head: bytes, body: object = ()) -> None:
            shutil.rmtree(rig.files.directory)
            write(kind, name, head, body)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(rig.files, "write", vanish_then_write)
            rig.ask(prompt(100, 1), "after")
            rig.settle()
        assert disk_usage(rig).note == "not written to: its directory has vanished"
        assert not on_disk(rig)
        rig.now += RETRY_S
        rig.settle()
        assert {name for name, _ in on_disk(rig)} == {"before", "after"}

    def test_a_place_that_can_t_be_used(self, tmp_path: Path) -> None:
        place = tmp_path / "place"
        place.write_text("a file, no directory")
        rig = Rig(disk=place)
        assert "Not a directory" in disk_usage(rig).note
        assert rig.output(rig.ask(prompt(50))) == oracle(prompt(50), 4)
        place.unlink()
        rig.now += RETRY_S
        rig.settle()
        assert on_disk(rig) == {("a", 55)}
