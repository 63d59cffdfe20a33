"""A part of the cases that is quick and touches each group of checks; all of them are `make cases`."""

from collections.abc import Iterator

import pytest

from tests.cases.case import DATA, Case, Check, read_cases
from tests.cases.report import lines
from tests.cases.run import Runner

QUICK = (
    "34-regenerate-three-times",
    "40-short-prompt-repeat",
    "45-cancel-then-other-message",
    "48-store-false",
    "49-instructions-not-inherited",
    "55-event-ladder",
    "64-engine-failure-mid-stream",
    "83-character-split-over-tokens",
)
CASES = {case.id: case for case in read_cases(DATA)}


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner() as running:
        yield running


@pytest.mark.parametrize("name", QUICK)
def test_case(runner: Runner, name: str) -> None:
    result = runner.run(CASES[name])
    assert result.word == "passed", "\n".join(lines(result))


def test_a_case_whose_check_does_not_hold_fails(runner: Runner) -> None:
    case = CASES["40-short-prompt-repeat"]
    impossible = Check("cached_min", {"step": "m2", "of": "m1.input", "frac": 2.0})
    wanted = Check("cached_min", {"step": "m2", "of": "m1.input", "frac": 3.0}, must=False)
    result = runner.run(Case(case.id, case.needs, case.profile, case.steps, (impossible, wanted)))
    assert result.word == "FAILED"
    assert [check for check, _ in result.failed] == [impossible]
    assert [check for check, _ in result.missed] == [wanted]
