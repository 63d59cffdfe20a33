"""A request that is called off frees its lane and pages at once, wherever it is, and what it has computed of its prompt serves the next."""

import pytest

from engine.api import CheckpointInfo, FinishReason, RequestId
from tests.engine.fake_model import oracle
from tests.engine.rig import Rig

LONG = [10 + at * 7 % 180 for at in range(200)]
OTHER = [10 + at * 11 % 180 for at in range(30)]


def verify_gone(rig: Rig, request: RequestId) -> tuple[CheckpointInfo, ...]:
    """No step is needed for it. Returns what it left."""
    finished = rig.finished(request)
    assert finished.reason is FinishReason.CANCELLED
    assert request not in rig.loop.turns
    assert rig.scheduler.find(request) is None
    return finished.checkpoints


# A prompt of 200 in chunks of 64 alone: 64, 128, 192, 200 tokens are computed after so many steps, then it generates.
@pytest.mark.parametrize(("steps", "progress"), [(0, 0), (1, 64), (2, 128), (3, 192)])
def test_in_its_prompt(steps: int, progress: int) -> None:
    rig = Rig()
    request = rig.submit(LONG, "a")
    for _ in range(steps):
        rig.step()
    rig.cancel(request)
    left = verify_gone(rig, request)
    assert [each.position for each in left] == ([progress] if progress else [])
    assert rig.cache.lanes.free == rig.cache.lanes.count
    assert rig.cache.pages.in_lanes == 0
    again = rig.ask(LONG, "b", max_tokens=1, save_tip=False)
    assert rig.started(again).reused_tokens == progress
    assert rig.output(again) == oracle(LONG, 1)
    assert rig.model.computed_tokens == len(LONG)


@pytest.mark.parametrize("steps", [4, 5, 9])
def test_while_it_generates(steps: int) -> None:
    rig = Rig()
    request = rig.submit(LONG, "a", anchors=(190,), max_tokens=100)
    for _ in range(steps):
        rig.step()
    said = len(rig.output(request))
    assert said == steps - 3
    rig.cancel(request)
    left = verify_gone(rig, request)
    assert [each.position for each in left][:1] == [190]
    assert rig.finished(request).output_tokens == said
    assert rig.output(request) == oracle(LONG, said)
    assert rig.cache.lanes.free == rig.cache.lanes.count
    assert rig.cache.pages.in_lanes == 0
    assert rig.output(rig.ask(LONG, "b")) == oracle(LONG, 4)


def test_while_it_waits_for_a_lane() -> None:
    rig = Rig(lanes=1)
    first = rig.submit(OTHER, "a")
    rig.step()
    waits, next_one = rig.submit(LONG, "b"), rig.submit(OTHER[::-1], "c")
    rig.step()
    rig.cancel(waits)
    assert verify_gone(rig, waits) == ()
    assert "b" not in rig.cache.reclaim.retentions
    rig.run()
    assert rig.output(first) == oracle(OTHER, 4)
    assert rig.output(next_one) == oracle(OTHER[::-1], 4)


def test_while_it_is_parked() -> None:
    """Its tokens so far are kept: they were said to the client. So is what was parked: whoever asks again goes on from there."""
    rig = Rig(device_cells=32, host_cells=200, lanes=2, context=200)
    low = rig.submit(LONG[:80], "low", max_tokens=90, priority=1)
    high = rig.submit(OTHER, "high", max_tokens=150, priority=2)
    while not rig.scheduler.counters.preemptions:
        rig.step()
    (parked,) = rig.scheduler.waiting
    assert parked.request_id == low
    said = rig.output(low)
    rig.cancel(low)
    (left,) = verify_gone(rig, low)
    assert left.position == 80 + len(said) - 1
    assert rig.finished(low).output_tokens == len(said)
    rig.run()
    assert said == oracle(LONG[:80], len(said))
    assert rig.output(high) == oracle(OTHER, 150)
    again = rig.ask([*LONG[:80], *said, 20], "low")
    assert rig.started(again).reused_tokens == left.position
    assert rig.output(again) == oracle([*LONG[:80], *said, 20], 4)


def test_while_only_its_tip_is_left_it_ends_as_it_did() -> None:
    """The turn is over; one step more and its state is there for the next."""
    rig = Rig()
    request = rig.submit(OTHER, "a", max_tokens=3)
    while not rig.loop.turns[request].sequence.closing:
        rig.step()
    rig.cancel(request)
    rig.step()
    assert rig.finished(request).reason is FinishReason.LENGTH
    assert rig.cache.pages.in_lanes == 0
    assert len(rig.finished(request).checkpoints) == 1


def test_beside_others_it_touches_nobody() -> None:
    rig = Rig(lanes=3)
    streams = [rig.submit([*OTHER, n], f"s{n}", max_tokens=40) for n in (20, 21)]
    for _ in range(4):
        rig.step()
    request = rig.submit(LONG, "a")
    for _ in range(3):
        rig.step()
    pages = rig.cache.pages.in_lanes
    rig.cancel(request)
    verify_gone(rig, request)
    assert rig.cache.pages.in_lanes < pages
    assert rig.cache.lanes.free == 1
    rig.run()
    for number, stream in zip((20, 21), streams, strict=True):
        assert rig.output(stream) == oracle([*OTHER, number], 40)
    again = rig.ask(LONG, "b")
    assert rig.started(again).reused_tokens == 3 * 16
    assert rig.output(again) == oracle(LONG, 4)


def test_twice_and_unknown_are_nothing() -> None:
    rig = Rig()
    request = rig.submit(LONG, "a")
    rig.step()
    rig.cancel(request)
    rig.cancel(request)
    rig.cancel(RequestId("nobody"))
    verify_gone(rig, request)
