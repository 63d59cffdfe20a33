"""Memory that runs short: what is demoted, dropped or refused, and who makes way. Around the fake model."""

import pytest

from engine.api import RejectCode, Rejected, RequestId, Retention, Tier
from tests.engine.fake_model import oracle, prompt
from tests.engine.rig import Rig


class TestMemory:
    """40 cells of 8 tokens and images of 5 cells: what is kept soon has to make way."""

    def test_demotes_to_the_host_and_resumes_from_there(self) -> None:
        rig = Rig(device_cells=40, host_cells=400, lanes=2, context=200)
        lines = [rig.line(prompt(100, n), rig.ask(prompt(100, n), f"c{n}")) for n in range(6)]
        assert {info.tier for info in rig.checkpoints("c0").values()} == {Tier.HOST}
        assert not rig.dropped
        for number, line in enumerate(lines):
            request = rig.ask([*line, 33, 44], f"c{number}", max_tokens=6)
            assert rig.started(request).reused_tokens == len(line)
            assert rig.output(request) == oracle([*line, 33, 44], 6)

    def test_going_back_to_the_host_costs_what_is_new(self) -> None:
        """What was there once stays there while it's in use, so no copy has to be made ahead of time."""
        rig = Rig(device_cells=30, host_cells=400, lanes=1, context=200)
        lines = [rig.line(prompt(100, n), rig.ask(prompt(100, n), f"c{n}")) for n in range(2)]
        copied: list[int] = []
        copy = rig.cache.pages.host.copy
        rig.cache.pages.host.copy = lambda cells, *source: (  # type: ignore[method-assign]
            copied.append(len(cells)),
            copy(cells, *source),
        )[1]
        for turn in range(6):
            line = lines[turn % 2]
            request = rig.ask([*line, 33, 44], f"c{turn % 2}")
            assert rig.started(request).reused_tokens == len(line)
            lines[turn % 2] = rig.line([*line, 33, 44], request)
        # An image of 5 cells, and of some 16 pages the last, and one or two behind it.
        demoted = rig.cache.reclaim.moves.demoted
        assert demoted >= 6
        assert sum(copied) <= 16 + demoted * (5 + 3)

    def test_without_a_host_the_oldest_is_dropped_and_told(self) -> None:
        rig = Rig(device_cells=40, host_cells=0, lanes=2, context=200)
        for number in range(4):
            rig.ask(prompt(100, number), f"c{number}")
        assert "c0" in {info.continuation for info in rig.dropped}
        assert set(rig.drop_reasons) == {"memory"}
        assert rig.checkpoints("c3")

    def test_priority_decides_before_age(self) -> None:
        rig = Rig(device_cells=50, host_cells=0, lanes=1, context=200)
        rig.ask(prompt(100, 1), "old", priority=5)
        rig.ask(prompt(100, 2), "new", priority=1)
        rig.ask(prompt(100, 3), "newest", priority=1)
        assert rig.checkpoints("old")
        assert not rig.checkpoints("new")

    def test_expendable_goes_first_and_pinned_stays(self) -> None:
        rig = Rig(device_cells=55, host_cells=0, lanes=1, context=200)
        rig.ask(prompt(100, 1), "pinned", priority=0, pinned_until=1e9)
        rig.ask(prompt(100, 2), "kept", priority=9, anchors=(50,))
        (spare,) = [i for i in rig.checkpoints("kept").values() if i.position == 50]
        rig.retain(Retention("kept", 9, rig.now, None, (spare.checkpoint,)))
        rig.ask(prompt(60, 3), "other", priority=5)
        assert rig.dropped[0] == spare
        assert rig.checkpoints("pinned")

    def test_pinned_memory_refuses_instead_of_dropping(self) -> None:
        rig = Rig(device_cells=40, host_cells=0, lanes=1, context=200)
        rig.ask(prompt(150, 1), "pinned", pinned_until=1e9)
        end = rig.end(rig.ask(prompt(180, 2), "other"))
        assert isinstance(end, Rejected)
        assert end.code is RejectCode.MEMORY_PINNED
        again = rig.ask([*prompt(150, 1), 20], "pinned")
        assert rig.output(again) == oracle([*prompt(150, 1), 20], 4)

    def test_pin_ends(self) -> None:
        rig = Rig(device_cells=40, host_cells=0, lanes=1, context=200)
        rig.ask(prompt(150, 1), "pinned", pinned_until=rig.now + 10)
        rig.now += 20
        request = rig.ask(prompt(180, 2), "other")
        assert rig.output(request) == oracle(prompt(180, 2), 4)

    def test_all_is_given_back(self) -> None:
        rig = Rig(device_cells=60, host_cells=60, lanes=2, context=200)
        for number in range(5):
            rig.ask(prompt(90, number), f"c{number}", anchors=(30, 60))
        for number in range(5):
            rig.drop(f"c{number}")
        rig.step()
        assert rig.cache.pages.device.used == 0
        assert rig.cache.pages.host.used == 0
        assert not rig.cache.reclaim.retentions


class TestPreemption:
    def test_preempted_sequences_lose_and_repeat_nothing(self) -> None:
        rig = Rig(device_cells=32, host_cells=200, lanes=3, context=200)
        requests = {n: rig.submit(prompt(60, n), f"c{n}", max_tokens=60) for n in range(3)}
        rig.run()
        assert rig.scheduler.counters.preemptions > 0
        for number, request in requests.items():
            assert rig.output(request) == oracle(prompt(60, number), 60)

    def test_preemption_without_a_host_recomputes(self) -> None:
        rig = Rig(device_cells=32, host_cells=0, lanes=3, context=200)
        requests = {n: rig.submit(prompt(60, n), f"c{n}", max_tokens=60) for n in range(3)}
        rig.run()
        assert rig.scheduler.counters.preemptions > 0
        assert rig.scheduler.counters.recomputed_tokens > 0
        for number, request in requests.items():
            assert rig.output(request) == oracle(prompt(60, number), 60)

    def test_the_lowest_priority_makes_way(self) -> None:
        rig = Rig(device_cells=32, host_cells=200, lanes=2, context=200)
        low = rig.submit(prompt(80, 1), "low", max_tokens=60, priority=1)
        rig.step()
        high = rig.submit(prompt(80, 2), "high", max_tokens=60, priority=2)
        rig.run()
        order = [request for request in rig.events if rig.events[request]]
        assert order[0] == low
        assert rig.scheduler.counters.preemptions > 0
        assert rig.output(high) == oracle(prompt(80, 2), 60)
        assert rig.output(low) == oracle(prompt(80, 1), 60)

    @pytest.mark.parametrize("device_cells", [32, 34, 36, 38])
    def test_what_was_computed_again_was_not_reused(self, device_cells: int) -> None:
        """It comes back to its prompt's checkpoint; what it had said by then is prefilled like a prompt."""
        rig, low, computed = made_way(device_cells, host_cells=0)
        twice = computed - 2 * (80 + 50 - 1) + 76
        assert 0 < twice < 76
        assert rig.started(low).reused_tokens == 76
        assert rig.finished(low).reused_tokens == 76 - twice
        assert rig.scheduler.counters.recomputed_tokens == twice

    def test_nothing_counts_as_computed_again_when_its_progress_was_kept(self) -> None:
        rig, low, computed = made_way(device_cells=30, host_cells=200)
        assert computed == 2 * (80 + 50 - 1) - 76
        assert rig.finished(low).reused_tokens == 76
        assert rig.scheduler.counters.recomputed_tokens == 0

    def test_no_less_than_nothing_is_reused(self) -> None:
        rig, low, _ = made_way(device_cells=32, host_cells=0, pinned_until=None)
        assert rig.scheduler.counters.recomputed_tokens > rig.started(low).reused_tokens == 76
        assert rig.finished(low).reused_tokens == 0

    def test_a_prompt_that_made_way_halfway_is_counted_too(self) -> None:
        rig = Rig(device_cells=47, host_cells=0, lanes=2, context=400)
        high = rig.submit(prompt(60, 2), "high", max_tokens=80, priority=2, save_tip=False)
        rig.step()
        low = rig.submit(prompt(300, 1), "low", max_tokens=1, priority=1, save_tip=False)
        rig.run()
        assert rig.output(high) == oracle(prompt(60, 2), 80)
        assert rig.output(low) == oracle(prompt(300, 1), 1)
        again = rig.model.computed_tokens - (60 + 80 - 1) - 300
        assert rig.scheduler.counters.preemptions == 1
        assert rig.scheduler.counters.recomputed_tokens == again > 0


def made_way(
    device_cells: int, host_cells: int, pinned_until: float | None = 1e9
) -> tuple[Rig, RequestId, int]:
    """A request with 76 of its 80 prompt tokens there already, that made way once for another while it spoke; with the
    tokens that both computed.
    """
    rig = Rig(device_cells=device_cells, host_cells=host_cells, lanes=2, context=200)
    rig.ask(
        prompt(80, 1), "low", anchors=(76,), max_tokens=1, save_tip=False, pinned_until=pinned_until
    )
    before = rig.model.computed_tokens
    low = rig.submit(
        prompt(80, 1), "low", max_tokens=50, priority=1, save_tip=False, pinned_until=pinned_until
    )
    rig.step()
    high = rig.submit(prompt(80, 2), "high", max_tokens=50, priority=2, save_tip=False)
    rig.run()
    assert rig.scheduler.counters.preemptions == 1
    assert rig.output(low) == oracle(prompt(80, 1), 50)
    assert rig.output(high) == oracle(prompt(80, 2), 50)
    return rig, low, rig.model.computed_tokens - before
