"""The bench's own reasoning: bars, verdicts, gates, the order of repetitions, the soak's faults. No engine runs here."""

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from bench.cases import CASES
from bench.registry import (
    Bar,
    Bench,
    Case,
    Measured,
    NotMeasured,
    WrongAnswer,
    interleaved,
    require_equal,
)
from bench.report import Row, table, verdict
from bench.soak.faults import Disk
from bench.soak.talk import MOVES, Talk
from bench.soak.tally import Tally
from engine.api import Message


def no_run(bench: Bench) -> Measured:
    raise AssertionError("not run here")


AT_LEAST = Case("fast", "theirs / ours", Bar(1.2, at_least=True, unit="×"), no_run)
AT_MOST = Case("cheap", "ours / theirs", Bar(3, at_least=False, unit=" %"), no_run)


@pytest.mark.parametrize(
    ("case", "figure", "met"),
    [
        (AT_LEAST, 1.2, True),
        (AT_LEAST, 1.19, False),
        (AT_MOST, 3.0, True),
        (AT_MOST, 3.01, False),
    ],
)
def test_a_bar_is_met_on_its_own_side(case: Case, figure: float, met: bool) -> None:
    assert Row(case, "demo", Measured("a", "b", figure)).met is met


def test_only_measured_figures_can_meet_a_bar() -> None:
    rows = [
        Row(AT_LEAST, "demo", Measured("1 s", "2 s", 2.0)),
        Row(AT_MOST, "demo", NotMeasured("there is no disk")),
        Row(AT_MOST, "wide", "token 3 differs"),
        Row(AT_MOST, "wide", Measured("4 ms", "100 ms", 4.0)),
    ]
    assert verdict(rows) == "1 met, 3 missed"
    lines = table(rows).splitlines()
    assert lines[2].split() == ["fast", "demo", "1", "s", "2", "s", "2.00×", "≥", "1.2×", "met"]
    assert lines[3].split()[-5:] == ["≤", "3", "%", "NOT", "MEASURED"]
    assert "token 3 differs" in lines[4]
    assert lines[5].split()[-6:] == ["4.00", "%", "≤", "3", "%", "MISSED"]
    assert "cheap  ours / theirs" in lines


def test_a_gate_names_the_first_difference() -> None:
    require_equal("equal", [1, 2, 3], (1, 2, 3))
    with pytest.raises(WrongAnswer, match=r"resumed: token 2 differs \(\[7\] against \[3\]\)"):
        require_equal("resumed", [1, 2, 7], [1, 2, 3])
    with pytest.raises(WrongAnswer, match="token 2 differs"):
        require_equal("shorter", [1, 2], [1, 2, 3])


def test_sides_take_turns_in_both_orders() -> None:
    order: list[str] = []
    left, right = iter((5.0, 1.0, 9.0)), iter((2.0, 2.0, 4.0))

    def first() -> float:
        order.append("left")
        return next(left)

    def second() -> float:
        order.append("right")
        return next(right)

    assert interleaved((first, second), 3) == [5.0, 2.0]
    assert order == ["left", "right", "right", "left", "left", "right"]


def test_case_names_are_unique() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names))


def tier(directory: Path, files: int) -> dict[Path, bytes]:
    """A directory with so many pages, and what lies around them."""
    contents = {
        directory / "i/pages" / f"{n:032x}": f"page {n}".encode() * 50 for n in range(files)
    }
    around = {directory / "i" / name: b"not one of them" for name in ("manifest.json", "lock")}
    for file, data in (contents | around).items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return contents


def test_damage_changes_some_files_of_the_tier(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    assert disk.damage(Random(1)) == 0
    for seed in range(40):
        contents = tier(tmp_path, 13)
        count = disk.damage(Random(seed))
        changed = [file for file, data in contents.items() if file.read_bytes() != data]
        assert len(changed) == count == 3
        assert (tmp_path / "i/lock").read_bytes() == b"not one of them"


def test_a_lost_disk_is_gone_and_litter_is_left_in_each_folder(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "disk")
    disk.directory.mkdir()
    assert not disk.lose()
    assert disk.litter(Random(1)) == 0
    tier(disk.directory, 2)
    assert disk.litter(Random(1)) == 3
    assert disk.lose()
    assert list(tmp_path.iterdir()) == [disk.directory]
    assert not disk.files()


def test_talk_keeps_to_the_roles() -> None:
    """Whatever the moves, a prompt begins with the system text and ends with the user's words, and names don't repeat."""
    talk, kinds = Talk(Random(3)), Counter[str]()
    for _ in range(500):
        kind, conversation = talk.move()
        kinds[kind] += 1
        roles = [message.role for message in conversation.messages]
        assert roles[0] == "system"
        assert roles[-1] == "user"
        assert conversation.name.startswith(f"{conversation.tenant}/")
        if kinds.total() % 3:
            conversation.messages.append(Message("assistant", "said"))
        conversation.busy = kinds.total() % 5 == 0
    names = [each.name for each in talk.all]
    assert len(names) == len(set(names))
    assert kinds.keys() >= set(MOVES)


def test_a_soak_that_compared_nothing_is_not_clean() -> None:
    tally = Tally()
    assert not tally.clean
    tally.compared = tally.requests = 1
    assert tally.clean
    assert tally.summary().endswith("1 requests, 0 wrong tokens, 0 leaks, 0 stuck lanes")


@pytest.mark.parametrize("bad", ["wrong", "leaks", "stuck", "failures", "ties"])
def test_one_bad_thing_is_enough(bad: str) -> None:
    tally = Tally(compared=50)
    setattr(tally, bad, 1)
    assert not tally.clean


def test_a_kind_that_never_happened_is_told_and_not_clean() -> None:
    tally = Tally(("kills", "forks"), compared=1)
    tally.note("forks", 3)
    tally.note("kills", 0)
    assert not tally.clean
    assert "never happened: kills" in tally.summary()
    assert ["forks", "3"] in [line.split() for line in tally.summary().splitlines()]
    tally.note("kills")
    assert tally.clean
