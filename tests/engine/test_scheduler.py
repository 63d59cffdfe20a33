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


@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 63, 64, 65, 130])
def test_lengths_around_page_and_chunk_borders(length: int) -> None:
    rig = Rig()
    request = rig.ask(prompt(length), max_tokens=20)
    assert rig.output(request) == oracle(prompt(length), 20)


def test_end_token_ends_the_turn_and_is_counted_but_not_said() -> None:
    rig = Rig(model=FakeModel(stop_every=5))
    expected = oracle(prompt(40), 100, stop_every=5)
    request = rig.ask(prompt(40), max_tokens=None)
    assert expected[-1] == END
    assert rig.output(request) == expected[:-1]
    finished = rig.finished(request)
    assert finished.reason is FinishReason.STOP
    assert finished.output_tokens == len(expected)
    assert rig.line(prompt(40), request) == prompt(40) + expected


class TestReuse:
    def test_next_turn_computes_only_what_follows_the_tip(self) -> None:
        rig = Rig(model=FakeModel(stop_every=9))
        first = rig.ask(prompt(100), max_tokens=None)
        tip = rig.line(prompt(100), first)
        longer = [*tip, *prompt(21, seed=5)]
        before = rig.model.computed_tokens
        second = rig.ask(longer, max_tokens=1, save_tip=False)
        started = rig.started(second)
        assert started.reused_tokens == len(tip) == started.matched_tokens
        assert started.reason is ResumeReason.RESUMED
        assert started.source is not None
        assert started.source.position == len(tip)
        assert rig.model.computed_tokens - before == len(longer) - len(tip)
        assert rig.output(second) == oracle(longer, 1)

    def test_a_turn_cut_off_is_closed_and_resumed_behind_its_closing(self) -> None:
        rig = Rig()
        first = rig.ask(prompt(30), max_tokens=5)
        tip = rig.line(prompt(30), first)
        assert tip[-1] == END
        assert len(tip) == 36
        second = rig.ask([*tip, *prompt(9)], max_tokens=7)
        assert rig.started(second).reused_tokens == 36
        assert rig.output(second) == oracle([*tip, *prompt(9)], 7)

    def test_stop_string_keeps_all_generated_tokens_in_the_tip(self) -> None:
        said = oracle(prompt(30), 6)
        rig = Rig()
        first = rig.ask(prompt(30), max_tokens=50, output=FakeOutput(stop_token=said[3]))
        assert rig.finished(first).reason is FinishReason.STOP
        tip = rig.line(prompt(30), first)
        assert tip == [*prompt(30), *said[:4], END]
        second = rig.ask([*tip, 50, 60], max_tokens=3)
        assert rig.started(second).reused_tokens == len(tip)
        assert rig.output(second) == oracle([*tip, 50, 60], 3)

    def test_same_prompt_again_computes_at_least_its_last_token(self) -> None:
        rig = Rig()
        rig.ask(prompt(48), anchors=(20, 48), save_tip=False)
        again = rig.ask(prompt(48), max_tokens=5)
        assert rig.started(again).reused_tokens == 20
        assert rig.output(again) == oracle(prompt(48), 5)
        longer = rig.ask([*prompt(48), 77], max_tokens=5)
        assert rig.started(longer).reused_tokens == 48
        assert rig.output(longer) == oracle([*prompt(48), 77], 5)

    def test_edit_in_the_middle_rewinds_to_the_last_checkpoint_before_it(self) -> None:
        rig = Rig()
        rig.ask(prompt(120), anchors=(30, 60, 90))
        edited = prompt(120)
        edited[70] += 1
        request = rig.ask(edited, max_tokens=5)
        started = rig.started(request)
        assert (started.reused_tokens, started.matched_tokens) == (60, 70)
        assert rig.output(request) == oracle(edited, 5)

    def test_matched_counts_shared_tokens_where_no_checkpoint_helps(self) -> None:
        rig = Rig()
        rig.ask(prompt(100))
        request = rig.ask([*prompt(50), *prompt(30, seed=9)])
        started = rig.started(request)
        assert started.reason is ResumeReason.NO_SHARED_CHECKPOINT
        assert started.reused_tokens == 0
        assert started.matched_tokens == 50
        assert started.source is None

    def test_many_forks_of_one_tip_together(self) -> None:
        rig = Rig(lanes=4)
        first = rig.ask(prompt(45), max_tokens=3)
        tip = rig.line(prompt(45), first)
        forks = [[*tip, *prompt(5 + n, seed=n)] for n in range(6)]
        requests = [rig.submit(fork, f"f{n}", max_tokens=9) for n, fork in enumerate(forks)]
        rig.run()
        for fork, request in zip(forks, requests, strict=True):
            assert rig.started(request).reused_tokens == len(tip)
            assert rig.output(request) == oracle(fork, 9)

    def test_another_tenants_state_is_never_used(self) -> None:
        rig = Rig()
        rig.ask(prompt(64), tenant="one", anchors=(32,))
        request = rig.ask([*prompt(64), 5], tenant="two")
        started = rig.started(request)
        assert (started.reused_tokens, started.matched_tokens) == (0, 0)
        assert started.reason is ResumeReason.NOTHING_STORED

    def test_in_flight_requests_with_a_common_beginning_share_its_pages_afterwards(self) -> None:
        rig = Rig()
        rig.submit(prompt(80), "a", anchors=(80,), save_tip=False)
        rig.submit([*prompt(80), *prompt(8, seed=3)], "b", anchors=(88,), save_tip=False)
        rig.run()
        images = 2 * rig.cache.checkpoints.image_cells
        assert rig.cache.pages.device.used == 11 + images


class TestAnchors:
    def test_chunks_end_on_them(self) -> None:
        rig = Rig()
        request = rig.ask(prompt(100), anchors=(33, 64, 97), max_tokens=1, save_tip=False)
        assert [chunk for batch in rig.model.batches for chunk in batch] == [33, 31, 33, 3]
        assert sorted(rig.checkpoints("a")) == [33, 64, 97]
        assert [info.position for info in rig.finished(request).checkpoints] == [33, 64, 97]

    def test_existing_ones_are_renewed_not_doubled(self) -> None:
        rig = Rig()
        rig.ask(prompt(60), anchors=(24,), save_tip=False)
        (first,) = rig.checkpoints("a").values()
        again = rig.ask(prompt(60, seed=0), anchors=(24,), save_tip=False)
        (second,) = rig.checkpoints("a").values()
        assert first.checkpoint == second.checkpoint
        assert rig.finished(again).checkpoints == (second,)

    def test_a_shared_head_belongs_to_both_and_outlives_one(self) -> None:
        rig = Rig()
        head = prompt(40)
        rig.ask([*head, *prompt(9, seed=1)], "a", anchors=(40,), save_tip=False)
        used = rig.cache.pages.device.used
        second = rig.ask([*head, *prompt(9, seed=2)], "b", anchors=(40,), save_tip=False)
        assert rig.started(second).reused_tokens == 40
        assert rig.cache.pages.device.used == used
        rig.drop("a")
        third = rig.ask([*head, *prompt(9, seed=3)], "c")
        assert rig.started(third).reused_tokens == 40
        rig.drop("b")
        rig.drop("c")
        assert rig.cache.pages.device.used == 0

    def test_a_ladder_rung_is_a_checkpoint_too(self) -> None:
        rig = Rig()
        rig.ask(prompt(100), max_tokens=1, save_tip=False, ladder_tokens=30)
        assert sorted(rig.checkpoints("a")) == [30, 60, 90]


class TestRefusals:
    def test_prompt_beyond_the_context(self) -> None:
        rig = Rig(context=100)
        end = rig.end(rig.ask(prompt(100)))
        assert isinstance(end, Rejected)
        assert (end.code, end.needed, end.available) == (
            RejectCode.CONTEXT_LENGTH_EXCEEDED,
            101,
            100,
        )
        assert rig.finished(rig.ask(prompt(99))).output_tokens == 1

    def test_output_is_cut_to_the_context(self) -> None:
        rig = Rig(context=100)
        request = rig.ask(prompt(90), max_tokens=None)
        assert rig.finished(request).reason is FinishReason.LENGTH
        assert rig.output(request) == oracle(prompt(90), 10)

    def test_full_queue(self) -> None:
        rig = Rig(lanes=1, max_waiting=2)
        requests = [rig.submit(prompt(20, seed=n), f"c{n}") for n in range(4)]
        end = rig.end(requests[3])
        assert isinstance(end, Rejected)
        assert (end.code, end.available) == (RejectCode.QUEUE_FULL, 2)
        rig.run()
        assert all(rig.output(request) for request in requests[:3])

    def test_same_request_id_twice(self) -> None:
        rig = Rig()
        rig.submit(prompt(20))
        rig._numbers -= 1
        rig.submit(prompt(20))
        assert any(isinstance(each, Rejected) for each in rig.events["r1"])


class TestOrder:
    def test_decode_goes_on_beside_a_long_prompt(self) -> None:
        rig = Rig()
        first = rig.submit(prompt(20), "a", max_tokens=30)
        rig.step()
        rig.step()
        long = rig.submit(prompt(300, seed=1), "b")
        said = len(rig.output(first))
        rig.step()
        assert len(rig.output(first)) == said + 1
        assert sorted(rig.model.batches[-1]) == [1, 16]
        rig.run()
        assert rig.output(long) == oracle(prompt(300, seed=1), 4)

    def test_short_prompt_overtakes_a_long_one(self) -> None:
        rig = Rig()
        long = rig.submit(prompt(380), "a", max_tokens=1)
        rig.step()
        short = rig.submit(prompt(30, seed=1), "b", max_tokens=1)
        rig.step()
        assert rig.output(short)
        assert not rig.output(long)

    def test_overtaking_is_bounded(self) -> None:
        """A stream of short prompts holds a long one up for about its own length."""
        rig = Rig(lanes=2, max_waiting=100)
        long = rig.submit(prompt(300), "long", max_tokens=1)
        served = 0
        while not rig.output(long):
            if len(rig.scheduler.waiting) < 3:
                served += 1
                rig.submit(prompt(40, seed=served), f"s{served}", max_tokens=1, save_tip=False)
            rig.step()
            assert served < 40
        rig.run()


class TestCancel:
    def test_in_prefill_keeps_progress_and_frees_lane_and_pages(self) -> None:
        rig = Rig()
        request = rig.submit(prompt(200))
        rig.step()
        rig.step()
        rig.cancel(request)
        finished = rig.finished(request)
        assert finished.reason is FinishReason.CANCELLED
        assert [info.position for info in finished.checkpoints] == [128]
        assert finished.ledger is None
        assert not rig.scheduler.running
        again = rig.ask(prompt(200))
        assert rig.started(again).reused_tokens == 128
        assert rig.output(again) == oracle(prompt(200), 4)

    def test_in_decode_ends_with_what_was_said(self) -> None:
        rig = Rig()
        request = rig.submit(prompt(30), anchors=(28,), max_tokens=50)
        for _ in range(6):
            rig.step()
        rig.cancel(request)
        finished = rig.finished(request)
        assert finished.reason is FinishReason.CANCELLED
        assert finished.output_tokens == len(rig.output(request)) > 0
        assert rig.line(prompt(30), request) == [*prompt(30), *rig.output(request), END]
        assert rig.cache.pages.in_lanes == 0

    def test_waiting_and_unknown(self) -> None:
        rig = Rig(lanes=1)
        first = rig.submit(prompt(30), "a")
        rig.step()
        second = rig.submit(prompt(30), "b")
        rig.cancel(second)
        assert rig.finished(second).reason is FinishReason.CANCELLED
        rig.cancel(second)
        rig.run()
        assert rig.output(first) == oracle(prompt(30), 4)


class TestFaults:
    def test_unreadable_output_ends_one_sequence(self) -> None:
        said = oracle(prompt(20), 3)
        rig = Rig()
        bad = rig.submit(prompt(20), "a", output=FakeOutput(fault=said[1]))
        good = rig.submit(prompt(25, seed=3), "b")
        rig.run()
        assert isinstance(rig.end(bad), Failed)
        assert rig.output(good) == oracle(prompt(25, seed=3), 4)
        assert rig.cache.pages.in_lanes == 0

    def test_logits_that_are_no_numbers_end_one_sequence(self) -> None:
        rig = Rig(model=FakeModel(blank_on=199))
        bad = rig.submit([*prompt(20), 199], "a")
        good = rig.submit(prompt(25, seed=3), "b")
        rig.run()
        assert isinstance(rig.end(bad), Failed)
        assert rig.output(good) == oracle(prompt(25, seed=3), 4)

    def test_banned_tokens_are_not_said(self) -> None:
        (first,) = oracle(prompt(20), 1)
        rig = Rig()
        request = rig.ask(prompt(20), banned=(first,), max_tokens=1)
        assert rig.output(request) != [first]


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
