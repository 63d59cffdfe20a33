"""Who is served when, and who is not: refusals, order, cancellation, faults. Around the fake model."""

from engine.api import Failed, FinishReason, RejectCode, Rejected
from tests.engine.fake_model import END, FakeModel, oracle, prompt
from tests.engine.rig import FakeOutput, Rig


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
        assert finished.reused_tokens == 0
        assert not rig.scheduler.running
        again = rig.ask(prompt(200))
        assert rig.started(again).reused_tokens == 128
        assert rig.finished(again).reused_tokens == 128
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
