"""Prompts prepared while nothing is asked for: what they leave, how they give way, how they end, and that nobody loses by them."""

import pytest

from engine.api import (
    AnchorKind,
    Prepared,
    PrepareOutcome,
    Rejected,
    RequestId,
    Retention,
    Shutdown,
    Tier,
)
from engine.errors import ModelFault
from engine.preparing import MOST_WAITING
from engine.saving import Saving
from tests.engine.fake_model import FakeModel, oracle, prompt
from tests.engine.rig import BUDGET, SHARING, Rig

LONG, OTHER = prompt(200), prompt(40, seed=1)
OPENER = [11, 12]


def outcome(rig: Rig, request: RequestId) -> PrepareOutcome:
    return rig.prepared(request).outcome


class TestWhatItLeaves:
    def test_the_next_request_computes_what_comes_after_only(self) -> None:
        rig = Rig()
        ahead = rig.prepare(LONG, "a", anchors=(50,), ladder_tokens=80)
        rig.rest()
        end = rig.prepared(ahead)
        assert (end.outcome, end.prompt_tokens, end.computed_tokens) == ("done", 200, 200)
        left = [(each.position, each.kind) for each in end.checkpoints]
        assert left == [
            (50, AnchorKind.EXPLICIT),
            (80, AnchorKind.LADDER),
            (160, AnchorKind.LADDER),
            (200, AnchorKind.PROMPT_END),
        ]
        assert rig.cache.lanes.free == rig.cache.lanes.count
        request = rig.ask([*LONG, *OPENER], "a", save_tip=False)
        assert rig.started(request).reused_tokens == 200
        assert rig.output(request) == oracle([*LONG, *OPENER], 4)
        assert rig.model.computed_tokens == 200 + len(OPENER) + 3

    def test_it_goes_on_from_what_is_there(self) -> None:
        rig = Rig()
        rig.ask(LONG[:100], "a", anchors=(96,), save_tip=False)
        ahead = rig.prepare(LONG, "a")
        rig.rest()
        assert rig.prepared(ahead).computed_tokens == 104

    def test_what_is_there_already_is_not_computed_again(self) -> None:
        rig = Rig()
        first = rig.prepare(LONG, "a", anchors=(50,))
        rig.rest()
        second = rig.prepare(LONG, "b", anchors=(50,))
        rig.rest()
        assert (outcome(rig, first), outcome(rig, second)) == ("done", "done")
        assert rig.prepared(second).computed_tokens == 0
        assert [each.position for each in rig.prepared(second).checkpoints] == [50, 200]
        assert rig.model.computed_tokens == 200

    def test_nothing_is_sampled_and_a_step_is_as_small_as_beside_decoding(self) -> None:
        rig = Rig()
        rig.prepare(LONG, "a")
        rig.rest()
        assert set(rig.model.batches[:-1]) == {(BUDGET.mixed,)}
        assert rig.scheduler.counters.generated_tokens == 0

    def test_what_is_worth_most_goes_first(self) -> None:
        rig = Rig()
        low, high = rig.prepare(LONG, "low", priority=1), rig.prepare(OTHER, "high", priority=2)
        while not rig.events[high]:
            rig.step()
        assert not rig.events[low]
        rig.rest()
        assert outcome(rig, low) == "done"


class TestGivingWay:
    def start(self, rig: Rig, steps: int) -> RequestId:
        """So many steps of LONG are prepared."""
        ahead = rig.prepare(LONG, "a")
        for _ in range(steps):
            rig.step()
        assert rig.model.computed_tokens == steps * BUDGET.mixed
        return ahead

    def test_lane_and_pages_are_free_at_once(self) -> None:
        rig = Rig(lanes=1)
        self.start(rig, 3)
        rig.model.batches.clear()
        request = rig.submit(OTHER, "b")
        assert rig.cache.lanes.free == 1
        assert rig.cache.pages.in_lanes == 0
        rig.step()
        assert rig.model.batches == [(len(OTHER),)]
        rig.run()
        assert rig.output(request) == oracle(OTHER, 4)

    def test_it_goes_on_where_it_was_when_all_is_quiet(self) -> None:
        rig = Rig()
        ahead = self.start(rig, 3)
        rig.ask(OTHER, "b", save_tip=False)
        spent = rig.model.computed_tokens
        rig.rest()
        assert rig.prepared(ahead).computed_tokens == 200
        assert rig.model.computed_tokens - spent == 200 - 3 * BUDGET.mixed
        assert set(rig.checkpoints("a")) == {200}
        assert rig.drop_reasons == ["superseded"]

    def test_progress_that_spares_little_is_not_kept(self) -> None:
        rig = Rig()
        ahead = self.start(rig, 1)
        assert BUDGET.mixed < SHARING.least
        rig.ask(OTHER, "b", save_tip=False)
        assert not rig.checkpoints("a")
        rig.rest()
        assert rig.prepared(ahead).computed_tokens == 200 + BUDGET.mixed

    @pytest.mark.parametrize("name", ["a", "b"])
    def test_the_request_may_be_the_one_it_was_meant_for(self, name: str) -> None:
        rig = Rig()
        ahead = self.start(rig, 5)
        request = rig.submit([*LONG, *OPENER], name)
        rig.run()
        assert rig.started(request).reused_tokens == 5 * BUDGET.mixed
        assert rig.output(request) == oracle([*LONG, *OPENER], 4)
        rig.rest()
        end = rig.prepared(ahead)
        assert end.outcome == ("taken_up" if name == "a" else "done")
        if name == "a":
            assert [each.position for each in end.checkpoints] == [5 * BUDGET.mixed]
            assert end.computed_tokens == 5 * BUDGET.mixed

    def test_it_does_not_run_while_anything_else_does(self) -> None:
        rig = Rig(lanes=1)
        busy = rig.submit(OTHER, "b", max_tokens=100)
        ahead = rig.prepare(LONG, "a")
        while rig.loop.turns:
            rig.step()
            assert not rig.events[ahead]
        assert rig.output(busy) == oracle(OTHER, 100)
        assert rig.scheduler.preparing.computed_tokens == 0
        rig.rest()
        assert outcome(rig, ahead) == "done"

    def test_the_engine_sleeps_when_nothing_is_left(self) -> None:
        rig = Rig()
        assert rig.loop._patience() is None
        rig.prepare(LONG, "a")
        assert rig.loop._patience() == 0
        rig.step()
        assert rig.loop._patience() == 0
        rig.rest()
        assert rig.loop._patience() is None

    def test_it_takes_no_place_in_the_queue(self) -> None:
        rig = Rig(lanes=1, max_waiting=1)
        for number in range(5):
            rig.prepare([*LONG, number], f"p{number}")
        rig.step()
        first, second = rig.submit(OTHER, "x"), rig.submit(OTHER[::-1], "y")
        rig.run()
        assert rig.output(first) == oracle(OTHER, 4)
        assert rig.output(second) == oracle(OTHER[::-1], 4)
        assert rig.snapshot().counters["preparations_interrupted"] == 1


class TestHowItEnds:
    def test_a_newer_one_of_the_continuation_replaces_it_and_goes_on_from_there(self) -> None:
        rig = Rig()
        older = rig.prepare(LONG, "a")
        for _ in range(4):
            rig.step()
        newer = rig.prepare([*LONG[:150], *OTHER], "a")
        assert outcome(rig, older) == "replaced"
        rig.rest()
        assert outcome(rig, newer) == "done"
        assert rig.prepared(newer).computed_tokens == 190 - 4 * BUDGET.mixed
        assert set(rig.checkpoints("a")) == {190}

    @pytest.mark.parametrize("steps", [0, 4])
    def test_cancelled(self, steps: int) -> None:
        rig = Rig()
        ahead = rig.prepare(LONG, "a")
        for _ in range(steps):
            rig.step()
        rig.cancel(ahead)
        assert outcome(rig, ahead) == "cancelled"
        assert rig.cache.pages.in_lanes == 0
        assert len(rig.checkpoints("a")) == (1 if steps else 0)
        assert ("a" in rig.cache.reclaim.retentions) == bool(steps)
        rig.cancel(ahead)
        rig.rest()
        assert rig.model.computed_tokens == steps * BUDGET.mixed

    def test_a_continuation_that_is_forgotten(self) -> None:
        rig = Rig()
        ahead = rig.prepare(LONG, "a")
        for _ in range(4):
            rig.step()
        rig.drop("a", ())
        assert not rig.events[ahead]
        rig.drop("a")
        assert outcome(rig, ahead) == "cancelled"
        rig.rest()
        assert rig.cache.pages.device.used == 0
        assert not rig.cache.reclaim.retentions

    def test_what_can_never_be_computed(self) -> None:
        rig = Rig(context=100)
        long, nothing = rig.prepare(LONG, "a"), rig.prepare([], "b")
        assert (outcome(rig, long), outcome(rig, nothing)) == ("rejected", "rejected")
        assert "holds 100 tokens" in rig.prepared(long).message
        assert not rig.cache.reclaim.retentions

    def test_an_id_in_flight(self) -> None:
        rig = Rig()
        request = rig.submit(LONG, "a")
        rig.prepare(LONG, "b", name=request)
        end = rig.events[request][-1]
        assert isinstance(end, Prepared)
        assert (end.outcome, end.message) == ("rejected", f"request {request} runs already")
        ahead = rig.prepare(LONG, "b")
        rig.submit(LONG, "c", name=ahead)
        assert isinstance(rig.end(ahead), Rejected)
        rig.events.pop(ahead)
        rig.rest()
        assert outcome(rig, ahead) == "done"

    def test_too_many_wait(self) -> None:
        rig = Rig()
        names = [rig.prepare(LONG, f"c{n}", priority=n) for n in range(MOST_WAITING + 1)]
        assert outcome(rig, names[0]) == "no_room"
        assert "c0" not in rig.cache.reclaim.retentions
        assert not any(rig.events[name] for name in names[1:])

    def test_the_engine_ends(self) -> None:
        rig = Rig()
        ahead = [rig.prepare(LONG, "a"), rig.prepare(OTHER, "b")]
        rig.step()
        rig._take(rig.loop.handle(Shutdown()))
        assert [outcome(rig, each) for each in ahead] == ["cancelled", "cancelled"]
        assert "shutting down" in rig.prepared(ahead[0]).message

    def test_a_forward_pass_that_fails_ends_the_process(self) -> None:
        rig = Rig(model=FakeModel(fail_on=199))
        ahead = rig.prepare([*OTHER, 199], "a")
        while rig.loop.fault is None:
            rig.step()
        assert isinstance(rig.loop.fault, ModelFault)
        assert outcome(rig, ahead) == "failed"

    def test_a_fault_in_its_handling_ends_it_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rig = Rig()
        bad, good = rig.prepare(LONG, "a", priority=1), rig.prepare(OTHER, "b")
        with monkeypatch.context() as patch:
            patch.setattr(Saving, "save", None)
            while not rig.events[bad]:
                rig.step()
        rig.rest()
        assert outcome(rig, bad) == "failed"
        assert outcome(rig, good) == "done"
        assert rig.loop.fault is None

    def test_all_of_it_is_counted(self) -> None:
        rig = Rig()
        rig.prepare(LONG, "a")
        rig.step()
        rig.ask(OTHER, "a")
        rig.prepare(OTHER[:20], "b")
        rig.rest()
        counters = rig.snapshot().counters
        assert counters["prepared_tokens"] == BUDGET.mixed + 20
        assert counters["preparations_taken_up"] == counters["preparations_done"] == 1
        assert counters["preparations_waiting"] == 0


class TestNobodyLosesByIt:
    """36 cells, pages of 8 tokens, images of 5 cells: 200 tokens take 30 cells, what others keep 17 each."""

    def full(self, host: int, priority: int) -> Rig:
        """Two continuations keep 96 tokens each."""
        rig = Rig(device_cells=36, host_cells=host, context=232)
        for number, name in enumerate(("x", "y")):
            rig.ask(
                prompt(97, seed=number + 5), name, anchors=(96,), save_tip=False, priority=priority
            )
        assert rig.cache.pages.device.used == 34
        return rig

    @pytest.mark.parametrize("host", [0, 16])
    def test_it_does_without_where_others_would_be_lost(self, host: int) -> None:
        rig = self.full(host, priority=0)
        spent = rig.model.computed_tokens
        ahead = rig.prepare(LONG, "a", priority=1)
        rig.rest()
        assert outcome(rig, ahead) == "no_room"
        assert not rig.dropped
        assert {each for name in "xy" for each in rig.checkpoints(name)} == {96}
        assert rig.model.computed_tokens == spent
        assert "a" not in rig.cache.reclaim.retentions

    def test_others_worth_less_move_to_the_host(self) -> None:
        rig = self.full(34, priority=0)
        ahead = rig.prepare(LONG, "a", priority=1)
        rig.rest()
        assert outcome(rig, ahead) == "done"
        assert not rig.dropped
        assert [rig.checkpoints(name)[96].tier for name in "xy"] == [Tier.HOST, Tier.HOST]

    def test_others_worth_more_stay_where_they_are(self) -> None:
        rig = self.full(34, priority=2)
        ahead = rig.prepare(LONG, "a", priority=1)
        rig.rest()
        assert outcome(rig, ahead) == "no_room"
        assert [rig.checkpoints(name)[96].tier for name in "xy"] == [Tier.DEVICE, Tier.DEVICE]

    def test_memory_that_has_become_short_ends_it_and_leaves_its_progress(self) -> None:
        rig = Rig(device_cells=36, host_cells=0, context=232)
        ahead = rig.prepare(LONG, "a", priority=1)
        for _ in range(6):
            rig.step()
        rig.ask(prompt(97, seed=5), "x", anchors=(96,), save_tip=False, priority=2)
        assert set(rig.checkpoints("a")) == {96}
        rig.rest()
        assert outcome(rig, ahead) == "no_room"
        assert set(rig.checkpoints("a")) == {96}
        request = rig.ask([*LONG, *OPENER], "a", save_tip=False, priority=3)
        assert rig.started(request).reused_tokens == 96

    def test_what_it_made_goes_first_where_it_is_worth_least(self) -> None:
        rig = Rig(device_cells=30, host_cells=0, context=232)
        ahead = rig.prepare(LONG, "a", priority=0)
        rig.rest()
        assert outcome(rig, ahead) == "done"
        request = rig.ask(prompt(150, seed=5), "x", priority=1)
        assert rig.output(request) == oracle(prompt(150, seed=5), 4)
        assert not rig.checkpoints("a")
        rig.retain(Retention(rig.dropped[0].continuation, 0, 0.0))
        assert "a" not in rig.cache.reclaim.retentions
