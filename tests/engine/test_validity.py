"""Commands whose values can't be what they stand for: named, refused, and nobody else notices."""

import dataclasses
import math
from typing import Any, cast

import pytest

from engine.api import (
    Cancel,
    ContinuationId,
    CountTokens,
    Drop,
    Generate,
    Message,
    Prefetch,
    Prepare,
    Prepared,
    PrepareOutcome,
    Prompt,
    RejectCode,
    Rejected,
    RequestId,
    Retention,
    SetRetention,
    Shutdown,
    TakeSnapshot,
    TenantKey,
)
from engine.validity import fault_of
from tests.engine.test_reader import Desk, desk

__all__ = ["desk"]

NAME: Any = ContinuationId("c")
SOUND = Retention(NAME, 1, 1.0)
PROMPT = Prompt((Message("user", "good"),))
GENERATE = Generate(RequestId("r"), TenantKey("t"), NAME, PROMPT, SOUND)


PREPARE = Prepare(RequestId("p"), TenantKey("t"), NAME, PROMPT, SOUND)


def worth(**changes: Any) -> Retention:
    return dataclasses.replace(SOUND, **changes)


BAD_WORTHS: list[tuple[Any, str]] = [
    (None, "NoneType is no retention"),
    (worth(continuation=7), "7"),
    (worth(priority="high"), "'high' can't be compared"),
    (worth(priority=10**400), "can't be compared"),
    (worth(used_at=None), "None can't be compared"),
    (worth(used_at=math.nan), "nan can't be compared"),
    (worth(pinned_until="soon"), "'soon' can't be compared"),
    (worth(pinned_until=math.inf), "inf can't be compared"),
    (worth(expendable=None), "expendable checkpoints are a tuple"),
    (worth(expendable=(["a"],)), "['a'] is no name"),
]
BAD_NAMES: list[Any] = [None, 5, ["a"], b"a", "\ud800"]


@pytest.mark.parametrize("field", ["request_id", "tenant", "continuation"])
@pytest.mark.parametrize("name", BAD_NAMES)
def test_names(field: str, name: Any) -> None:
    for command in (GENERATE, PREPARE):
        changed = dataclasses.replace(command, **{field: name})
        assert fault_of(changed) == f"{name!r} is no name"


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_in_other_commands(name: Any) -> None:
    commands = (
        *(Cancel(name), CountTokens(name, PROMPT), TakeSnapshot(name)),
        *(Drop(name, "asked"), Drop(NAME, "asked", (name,)), Prefetch((NAME, name))),
    )
    for command in commands:
        assert fault_of(command) == f"{name!r} is no name"


@pytest.mark.parametrize(("retention", "words"), BAD_WORTHS)
def test_worths(retention: Any, words: str) -> None:
    for command in (
        dataclasses.replace(GENERATE, retention=retention),
        dataclasses.replace(PREPARE, retention=retention),
        SetRetention((SOUND, retention)),
    ):
        assert words in (fault_of(command) or "")


def test_the_worth_of_another_continuation() -> None:
    other = worth(continuation="other")
    assert fault_of(dataclasses.replace(GENERATE, retention=other)) == (
        "the retention is that of 'other'"
    )
    assert fault_of(SetRetention((SOUND, other))) is None


def test_what_is_no_command() -> None:
    assert fault_of(3) == "int is no command"
    assert fault_of(Rejected(RequestId("r"), RejectCode.QUEUE_FULL, "")) == "Rejected is no command"
    nothing: Any = None
    assert fault_of(SetRetention(nothing)) == "NoneType is no retention"
    assert fault_of(Prefetch(nothing)) == "None is no name"
    assert fault_of(Drop(NAME, "asked", cast(Any, 3))) == "None is no name"


def test_sound_commands() -> None:
    pinned = worth(pinned_until=5.0, expendable=("a", "b"))
    for command in (
        *(GENERATE, SetRetention((SOUND, pinned)), Drop(NAME, "asked"), Drop(NAME, "asked", ())),
        *(PREPARE, Prefetch((NAME,)), Prefetch(())),
        *(Cancel(RequestId("r")), CountTokens(RequestId("n"), PROMPT), Shutdown()),
    ):
        assert fault_of(command) is None


def test_a_command_that_can_t_be_acted_on_is_refused_and_others_are_served(
    desk: Desk,
    caplog: pytest.LogCaptureFixture,
) -> None:
    nobody: Any = ["a", "list"]
    anything: Any = 3
    desk.send(
        *(dataclasses.replace(PREPARE, retention=worth(priority="high")), anything),
        dataclasses.replace(GENERATE, retention=worth(used_at=math.nan)),
        *(Drop(nobody, "asked"), dataclasses.replace(GENERATE, request_id=nobody), GENERATE),
    )
    prepared, first, second = desk.event(), desk.event(), desk.event()
    assert isinstance(prepared, Prepared)
    assert (prepared.request_id, prepared.outcome) == ("p", PrepareOutcome.REJECTED)
    assert isinstance(first, Rejected)
    assert (first.request_id, first.code) == ("r", RejectCode.INVALID_PROMPT)
    assert "nan" in first.message
    assert isinstance(second, Rejected)
    assert desk.taken() == "r"
    assert caplog.text.count("a command can't be acted on") == 5
