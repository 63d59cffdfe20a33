"""The loop with its real cache and scheduler around the fake model: what is computed, what is reused, who makes way."""

import pytest

from engine.api import (
    Failed,
    FinishReason,
    RejectCode,
    Rejected,
    ResumeReason,
    Retention,
    Tier,
)
from tests.engine.fake_model import END, FakeModel, oracle
from tests.engine.rig import FakeOutput, Rig


def prompt(length: int, seed: int = 0) -> list[int]:
    return [10 + (seed * 7919 + at * 104_729 + at * at * 31) % 180 for at in range(length)]


def test_answer_is_the_oracles() -> None:
    rig = Rig()
    request = rig.ask(prompt(50), max_tokens=6)
    assert rig.output(request) == oracle(prompt(50), 6)
    assert rig.finished(request).reason is FinishReason.LENGTH
    assert rig.started(request).reason is ResumeReason.NOTHING_STORED
