"""The loop with its real cache and scheduler around the fake model: what is computed, reused and kept."""

import pytest

from engine.api import FinishReason, ResumeReason
from tests.engine.fake_model import END, FakeModel, oracle, prompt
from tests.engine.rig import FakeOutput, Rig


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
