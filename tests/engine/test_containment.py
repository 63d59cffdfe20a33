"""A fault in one sequence's handling ends that sequence and nothing else: faults put in at each place where one is handled."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import pytest

from engine.api import Failed, FinishReason, LedgerEntry, RequestId, Shutdown
from engine.errors import ModelFault, StateFault
from engine.inbox import Inbox
from engine.planner.step import Budget
from engine.resuming import Resuming
from engine.sequence import Sequence
from tests.engine.fake_model import FakeModel, oracle
from tests.engine.rig import FakeOutput, Rig

GOOD, BAD = [10 + at * 7 % 180 for at in range(25)], [10 + at * 11 % 180 for at in range(40)]


class Fault(Exception):
    """What the tests put in."""


class FaultyOutput(FakeOutput):
    """Breaks in the named member."""

    def __init__(self, member: str) -> None:
        self._member = member
        self._reasoning = 0
        self._stopped = False
        super().__init__()

    def _reach(self, member: str) -> None:
        if member == self._member:
            raise Fault(member)

    @property
    def reasoning_tokens(self) -> int:
        self._reach("reasoning_tokens")
        return self._reasoning

    @reasoning_tokens.setter
    def reasoning_tokens(self, count: int) -> None:
        self._reasoning = count

    @property
    def stopped(self) -> bool:
        self._reach("stopped")
        return self._stopped

    @stopped.setter
    def stopped(self, value: bool) -> None:
        self._stopped = value

    def feed(self, token_id: int) -> Any:
        self._reach("feed")
        return super().feed(token_id)

    def finish(self, reason: FinishReason) -> Any:
        self._reach("finish")
        return super().finish(reason)

    def ledger_entry(self, opener_tokens: Any, generated_tokens: Any) -> LedgerEntry:
        self._reach("ledger_entry")
        return super().ledger_entry(opener_tokens, generated_tokens)


@contextmanager
def broken(owner: Any, name: str, guilty: Callable[..., bool]) -> Iterator[list[str]]:
    """`owner.name` raises where `guilty` says so of its arguments; yields the calls that did."""
    real, raised = getattr(owner, name), []

    def call(*arguments: Any, **named: Any) -> Any:
        if guilty(*arguments, **named):
            raised.append(name)
            raise Fault(name)
        return real(*arguments, **named)

    setattr(owner, name, call)
    try:
        yield raised
    finally:
        setattr(owner, name, real)


@contextmanager
def during(owner: Any, name: str, chosen: Callable[..., bool]) -> Iterator[list[str]]:
    """Yields a list that has something in it while `owner.name` runs with such arguments."""
    real, active = getattr(type(owner), name), list[str]()

    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        active.extend([name] * chosen(*arguments, **named))
        try:
            return real(self, *arguments, **named)
        finally:
            active.clear()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(owner), name, call)
        yield active


def verify_all_went_on(rig: Rig, good: RequestId) -> None:
    """Nobody failed, and everything is given back."""
    assert rig.output(good) == oracle(GOOD, 4)
    assert rig.loop.fault is None
    assert rig.output(rig.ask(BAD, "after")) == oracle(BAD, 4)
    for name in ("bad", "good", "after"):
        rig.drop(name)
    assert rig.cache.pages.device.used == rig.cache.pages.host.used == 0
    assert not rig.cache.reclaim.retentions


def always(*_: Any, **__: Any) -> bool:
    return True


def verify_the_rest(rig: Rig, bad: RequestId, good: RequestId) -> None:
    """The bad one failed, the good one is right, the engine serves on and has given everything back."""
    end = rig.end(bad)
    assert isinstance(end, Failed)
    assert "Fault" in end.message
    assert rig.output(good) == oracle(GOOD, 4)
    assert rig.loop.fault is None
    assert rig.output(rig.ask(BAD, "after")) == oracle(BAD, 4)
    for name in ("bad", "good", "after"):
        rig.drop(name)
    assert rig.cache.pages.device.used == rig.cache.pages.host.used == 0
    assert not rig.cache.reclaim.retentions
    assert rig.cache.lanes.free == rig.cache.lanes.count


@pytest.mark.parametrize(
    "member", ["feed", "stopped", "finish", "ledger_entry", "reasoning_tokens"]
)
def test_text_output_and_counting(member: str) -> None:
    rig = Rig()
    bad = rig.submit(BAD, "bad", output=FaultyOutput(member))
    good = rig.submit(GOOD, "good")
    rig.run()
    verify_the_rest(rig, bad, good)


@pytest.mark.parametrize("member", ["finish", "ledger_entry", "reasoning_tokens"])
def test_cancelling(member: str) -> None:
    rig = Rig()
    bad = rig.submit(BAD, "bad", max_tokens=50, output=FaultyOutput(member))
    good = rig.submit(GOOD, "good")
    rig.step()
    rig.step()
    rig.cancel(bad)
    assert isinstance(rig.end(bad), Failed)
    assert bad not in rig.loop.turns
    rig.run()
    verify_the_rest(rig, bad, good)


def test_progress_that_cannot_be_kept() -> None:
    rig = Rig(budget=Budget(alone=30, mixed=30, least=4))
    good, bad = rig.submit(GOOD, "good"), rig.submit(BAD, "bad")
    rig.step()
    rig.step()
    with broken(rig.cache, "save", always) as raised:
        rig.cancel(bad)
    assert raised
    assert rig.finished(bad).reason is FinishReason.CANCELLED
    assert rig.finished(bad).checkpoints == ()
    rig.run()
    verify_all_went_on(rig, good)


# Parts of saving on the device, and of saving on the host: each can break off midway.
@pytest.mark.parametrize(
    ("device", "part"), [(200, "save"), (200, "pack"), (10, "pack"), (10, "write"), (10, "copy")]
)
def test_a_checkpoint_that_cannot_be_saved_is_left_out(device: int, part: str) -> None:
    rig = Rig(device, context=76)
    good, bad = rig.submit(GOOD, "good"), rig.submit(BAD, "bad", anchors=(20,), priority=-1)
    owner: Any = {
        "save": rig.cache,
        "pack": rig.cache.checkpoints._images,
        "write": rig.cache.pages.host,
        "copy": rig.cache.pages.host,
    }[part]
    saving = rig.scheduler.saving
    with (
        during(saving, "save", lambda sequence, *_: sequence.request_id == bad) as active,
        broken(owner, part, lambda *_, **__: bool(active)) as raised,
    ):
        rig.run()
    assert raised
    assert rig.scheduler.counters.checkpoints_failed == len(raised)
    assert rig.output(bad) == oracle(BAD, 4)
    # Its anchor and its tip, as far as nothing broke.
    assert len(rig.checkpoints("bad")) + len(raised) == 2
    verify_all_went_on(rig, good)


def test_restoring_a_checkpoint() -> None:
    rig = Rig()
    rig.ask(BAD, "bad", anchors=(30,))
    good, bad = rig.submit(GOOD, "good"), rig.submit([*BAD, 20], "bad")
    with broken(rig.cache.checkpoints, "unpack", always) as raised:
        rig.run()
    assert raised
    verify_the_rest(rig, bad, good)


def test_making_room_for_a_prompt() -> None:
    rig = Rig()
    good, bad = rig.submit(GOOD, "good"), rig.submit(BAD, "bad")
    lane_of = rig.scheduler.running
    with broken(rig.cache, "reserve", lambda lane, *_: lane_of[lane].request_id == bad) as raised:
        rig.run()
    assert raised
    verify_the_rest(rig, bad, good)


def test_the_only_one_running_has_no_room_made() -> None:
    rig = Rig()
    bad = rig.submit(BAD, "bad")
    with broken(rig.cache, "reserve", always):
        rig.run()
    verify_the_rest(rig, bad, rig.ask(GOOD, "good"))


@pytest.mark.parametrize("part", ["park", "write", "copy"])
def test_parking_for_others_is_left_out(part: str) -> None:
    """What can't be parked is computed again; not a token is said twice."""
    rig = Rig(device_cells=16, lanes=2, context=120)
    good = rig.submit(BAD, "good", max_tokens=40, priority=2)
    bad = rig.submit(GOOD, "bad", max_tokens=60, priority=1)
    owner: Any = rig.cache if part == "park" else rig.cache.pages.host
    with broken(owner, part, always) as raised:
        rig.run()
    assert raised
    assert rig.output(good) == oracle(BAD, 40)
    assert rig.output(bad) == oracle(GOOD, 60)
    assert rig.scheduler.counters.recomputed_tokens > 0
    assert rig.loop.fault is None


def test_what_cannot_be_copied_to_the_host_is_dropped() -> None:
    """As if the host had no room; whoever needs the device goes on."""
    rig = Rig(device_cells=32, context=216)
    rig.ask(BAD, "bad", anchors=(30,), save_tip=False)
    with broken(rig.cache.pages.host, "copy", always) as raised:
        long = rig.ask([*GOOD * 8, 20], "good", save_tip=False)
    assert raised
    assert rig.output(long) == oracle([*GOOD * 8, 20], 4)
    assert rig.snapshot().counters["checkpoints_not_demoted"] == len(raised)
    assert rig.drop_reasons == ["memory"]


@pytest.mark.parametrize("part", ["look_up", "adopt"])
def test_admission(part: str) -> None:
    rig = Rig()
    rig.ask(BAD, "known", anchors=(30,), save_tip=False)
    good = rig.submit(GOOD, "good")
    guilty = always
    if part == "look_up":
        guilty = lambda line: len(line.tokens) == 4 * len(BAD)  # noqa: E731
    with broken(rig.cache, part, guilty) as raised:
        bad = rig.submit(BAD, "bad", anchors=(30,))
        rig.run()
    assert raised
    rig.drop("known")
    verify_the_rest(rig, bad, good)


def test_bringing_state_from_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, fetch = Rig(), Resuming.fetch

    def failing(self: Resuming, sequence: Sequence, now: float) -> bool:
        if sequence.continuation == "bad":
            raise Fault("fetch")
        return fetch(self, sequence, now)

    with monkeypatch.context() as patch:
        patch.setattr(Resuming, "fetch", failing)
        good, bad = rig.submit(GOOD, "good"), rig.submit(BAD, "bad")
        rig.run()
    verify_the_rest(rig, bad, good)


def test_telling_that_it_started() -> None:
    rig = Rig()
    good, bad = rig.submit(GOOD, "good"), rig.submit(BAD, "bad")
    rig.loop.turns[bad].prompted = None  # type: ignore[assignment]
    rig.run()
    end = rig.end(bad)
    assert isinstance(end, Failed)
    assert rig.output(good) == oracle(GOOD, 4)


def test_the_last_word() -> None:
    rig = Rig()
    good, bad = rig.submit(GOOD, "good"), rig.submit(BAD, "bad")
    with broken(rig.cache, "info", lambda continuation, _: continuation == "bad") as raised:
        rig.run()
    assert raised
    verify_the_rest(rig, bad, good)


class TestTheProcessEnds:
    def test_after_a_forward_pass_that_failed(self) -> None:
        rig = Rig(model=FakeModel(fail_on=199), lanes=2)
        beside = rig.submit(GOOD, "a", max_tokens=30)
        rig.step()
        bad = rig.submit([*BAD, 199], "b")
        waits = rig.submit([*BAD, *BAD], "c")
        while rig.loop.fault is None:
            rig.step()
        assert isinstance(rig.loop.fault, ModelFault)
        for request in (beside, bad):
            end = rig.end(request)
            assert isinstance(end, Failed)
            assert "the forward pass failed" in end.message
        assert not rig.events[waits]
        assert not rig.scheduler.running

    def test_when_the_accounts_do_not_hold_after_a_fault(self) -> None:
        rig = Rig()
        bad = rig.submit(BAD, "bad", output=FakeOutput(fault=oracle(BAD, 1)[0]))
        rig.loop.check_integrity = False
        rig.cache.pages.device.allocate(1)
        rig.run()
        assert isinstance(rig.end(bad), Failed)
        assert isinstance(rig.loop.fault, StateFault)

    def test_once_everybody_has_been_told(self) -> None:
        rig = Rig(model=FakeModel(fail_on=199))
        bad = rig.submit([*BAD, 199], "b")
        inbox: Inbox = SimpleQueue()
        with pytest.raises(ModelFault):
            rig.loop.run(inbox)
        assert isinstance(rig.end(bad), Failed)

    def test_not_when_it_is_asked_to(self) -> None:
        rig = Rig()
        inbox: Inbox = SimpleQueue()
        inbox.put(Shutdown())
        rig.loop.run(inbox)
