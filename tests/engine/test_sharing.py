"""Prompts in flight with a common beginning: it is computed once, nobody waits longer than computing alone would take, nobody is stuck."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import AnchorKind, Failed, FinishReason, RequestId, Started
from engine.planner.sharing import BLOCK_TOKENS, Lead, Leader, Sharing, choose_lead, common_tokens
from engine.planner.step import Budget
from tests.engine.fake_model import oracle
from tests.engine.rig import Rig

RULE = Sharing(least=256, slack=64)


def leader(computed: int, common: int, stops: tuple[int, ...] = (), lane: int = 0) -> Leader:
    return Leader(lane, computed, common, stops)


class TestDecision:
    @pytest.mark.parametrize(
        ("leaders", "reusable", "tokens", "lead"),
        [
            ([leader(0, 4096)], 0, 5000, Lead(0, 4096)),
            ([leader(0, 4096)], 0, 4096, Lead(0, 4095)),  # the last token is computed by itself
            ([leader(0, 4096)], 0, 256, None),
            ([leader(0, 4096)], 0, 257, Lead(0, 256)),
            ([leader(0, 255)], 0, 5000, None),
            ([leader(1024, 1279)], 1024, 5000, None),
            ([leader(1024, 1280)], 1024, 5000, Lead(0, 1280)),
            ([leader(4096, 4096)], 0, 5000, None),  # been there
            ([leader(4095, 4096)], 0, 5000, Lead(0, 4096)),
            ([leader(1000, 4096)], 2000, 5000, None),  # behind where it could begin
            ([leader(2000, 4096)], 2000, 5000, Lead(0, 4096)),
            ([], 0, 5000, None),
        ],
    )
    def test_worth_while(
        self, leaders: list[Leader], reusable: int, tokens: int, lead: Lead | None
    ) -> None:
        assert choose_lead(leaders, reusable, tokens, RULE) == lead

    @pytest.mark.parametrize(
        ("stops", "stop"),
        [
            ((4000,), 4096),  # too far before
            ((4032,), 4032),
            ((4032, 4090, 4200), 4090),
            ((4096,), 4096),
        ],
    )
    def test_a_checkpoint_made_anyway_serves(self, stops: tuple[int, ...], stop: int) -> None:
        assert choose_lead([leader(0, 4096, stops)], 0, 5000, RULE) == Lead(0, stop)

    def test_not_one_that_lies_behind(self) -> None:
        assert choose_lead([leader(4050, 4096, (4040,))], 0, 5000, RULE) == Lead(0, 4096)

    def test_the_one_that_spares_most_and_waits_least(self) -> None:
        soon, far = leader(3900, 4000, lane=1), leader(0, 5000, lane=2)
        assert choose_lead([far, soon], 0, 5200, RULE) == Lead(1, 4000)
        little, much = leader(1000, 1300, lane=1), leader(900, 9000, lane=2)
        assert choose_lead([little, much], 0, 9200, RULE) == Lead(2, 9000)
        assert choose_lead([leader(0, 900, lane=n) for n in (3, 1, 2)], 0, 1000, RULE) == Lead(
            1, 900
        )

    @given(
        st.lists(
            st.tuples(st.integers(0, 9000), st.integers(0, 9000), st.lists(st.integers(1, 9000))),
            max_size=5,
        ),
        st.integers(0, 9000),
        st.integers(1, 9000),
    )
    def test_waiting_costs_no_more_than_computing_alone(
        self, shapes: list[tuple[int, int, list[int]]], reusable: int, tokens: int
    ) -> None:
        leaders = [
            Leader(lane, computed, common, sorted(stops))
            for lane, (computed, common, stops) in enumerate(shapes)
        ]
        lead = choose_lead(leaders, reusable, tokens, RULE)
        if lead is None:
            return
        chosen = leaders[lead.lane]
        assert chosen.computed < lead.stop <= min(chosen.common, tokens - 1)
        assert lead.stop - reusable >= RULE.least
        alone = tokens - reusable
        assert (lead.stop - chosen.computed) + (tokens - lead.stop) <= alone

    @pytest.mark.parametrize("at", [0, 1, BLOCK_TOKENS - 1, BLOCK_TOKENS, 2500, 2999, 3000])
    def test_common_tokens(self, at: int) -> None:
        left = array("I", range(3000))
        right = array("I", [*range(at), *range(9000, 9000 + 3000 - at)])
        assert common_tokens(left, right) == common_tokens(right, left) == at
        assert common_tokens(left, left[:at]) == at


HEAD = [10 + at * 37 % 180 for at in range(200)]


def tail(seed: int, length: int = 20) -> list[int]:
    return [10 + (seed * 53 + at * 71 + 5) % 180 for at in range(length)]


def prompts(count: int) -> list[list[int]]:
    return [[*HEAD, *tail(n)] for n in range(count)]


def submit_all(rig: Rig, asked: list[list[int]], **options: object) -> list[RequestId]:
    return [
        rig.submit(tokens, f"c{n}", max_tokens=1, save_tip=False, **options)  # type: ignore[arg-type]
        for n, tokens in enumerate(asked)
    ]


def verify(rig: Rig, asked: list[list[int]], requests: list[RequestId]) -> None:
    for tokens, request in zip(asked, requests, strict=True):
        assert rig.output(request) == oracle(tokens, 1)


def started(rig: Rig, request: RequestId) -> bool:
    return any(isinstance(each, Started) for each in rig.events[request])


class TestOneHead:
    def test_is_computed_once(self) -> None:
        rig = Rig(lanes=4)
        requests = submit_all(rig, prompts(4))
        rig.run()
        verify(rig, prompts(4), requests)
        assert rig.model.computed_tokens == len(HEAD) + 4 * 20
        assert [rig.started(each).reused_tokens for each in requests] == [0, 200, 200, 200]
        assert rig.scheduler.counters.followed == 3

    def test_by_equal_prompts_all_but_the_last_token(self) -> None:
        rig = Rig(lanes=4)
        asked = [HEAD] * 4
        requests = submit_all(rig, asked)
        rig.run()
        verify(rig, asked, requests)
        assert rig.model.computed_tokens == len(HEAD) + 3

    def test_by_more_than_there_are_lanes(self) -> None:
        rig = Rig(lanes=2)
        requests = submit_all(rig, prompts(7))
        rig.run()
        verify(rig, prompts(7), requests)
        assert rig.model.computed_tokens == len(HEAD) + 7 * 20

    def test_by_one_that_comes_while_it_is_computed(self) -> None:
        rig = Rig(lanes=4)
        requests = submit_all(rig, prompts(1))
        rig.step()
        requests.append(rig.submit(prompts(2)[1], "late", max_tokens=1, save_tip=False))
        rig.run()
        verify(rig, prompts(2), requests)
        assert rig.model.computed_tokens == len(HEAD) + 2 * 20

    def test_but_not_for_another_tenant(self) -> None:
        rig = Rig(lanes=4)
        requests = [
            rig.submit(tokens, f"c{n}", f"t{n}", max_tokens=1, save_tip=False)
            for n, tokens in enumerate(prompts(2))
        ]
        rig.run()
        verify(rig, prompts(2), requests)
        assert rig.model.computed_tokens == 2 * (len(HEAD) + 20)

    def test_but_not_where_it_is_too_short(self) -> None:
        rig = Rig(lanes=4)
        asked = [[*HEAD[:31], *tail(n)] for n in range(2)]
        verify_run = submit_all(rig, asked)
        rig.run()
        verify(rig, asked, verify_run)
        assert rig.model.computed_tokens == 2 * (31 + 20)
        assert rig.scheduler.counters.followed == 0

    def test_beyond_what_is_cached_already(self) -> None:
        rig = Rig(lanes=4)
        rig.ask(HEAD[:190], "before", max_tokens=1, anchors=(180,), save_tip=False)
        before = rig.model.computed_tokens
        requests = submit_all(rig, prompts(2))
        rig.run()
        verify(rig, prompts(2), requests)
        assert rig.model.computed_tokens - before == 2 * 40
        assert rig.scheduler.counters.followed == 0

    def test_leaves_a_checkpoint_where_they_part(self) -> None:
        rig = Rig(lanes=4)
        submit_all(rig, prompts(2))
        rig.run()
        assert rig.checkpoints("c0")[200].kind is AnchorKind.BRANCH

    def test_or_uses_the_one_that_is_made_anyway(self) -> None:
        rig = Rig(lanes=4)
        requests = submit_all(rig, prompts(3), anchors=(195,))
        rig.run()
        verify(rig, prompts(3), requests)
        assert sorted(rig.checkpoints("c0")) == [195]
        assert rig.model.computed_tokens == 195 + 3 * 25

    def test_with_several_points_of_parting(self) -> None:
        rig = Rig(lanes=4)
        asked = [
            [*HEAD, *tail(1)],
            [*HEAD[:100], *tail(2, 130)],
            [*HEAD[:160], *tail(3, 80)],
            [*HEAD[:160], *tail(3, 70), *tail(4, 30)],
        ]
        requests = submit_all(rig, asked)
        rig.run()
        verify(rig, asked, requests)
        assert rig.model.computed_tokens == 220 + 130 + 80 + 30


class TestWaiting:
    def test_ends_with_the_step_that_brings_the_checkpoint(self) -> None:
        rig = Rig(lanes=4, budget=Budget(50, 50, 4))
        first, second = submit_all(rig, prompts(2))
        for _ in range(4):
            assert not started(rig, second)
            rig.step()
        rig.step()
        assert rig.started(second).reused_tokens == 200
        rig.run()
        verify(rig, prompts(2), [first, second])

    def test_does_not_hold_up_others(self) -> None:
        rig = Rig(lanes=4)
        submit_all(rig, prompts(3))
        rig.step()
        other = rig.submit(tail(9, 150), "other", max_tokens=1, save_tip=False)
        rig.step()
        assert started(rig, other)

    def test_keeps_the_place_that_running_would_have_kept(self) -> None:
        """Two lanes: a longer prompt can't take the follower's, which is shorter and came first."""
        rig = Rig(lanes=2, budget=Budget(50, 50, 4))
        _, second = submit_all(rig, prompts(2))
        rig.step()
        other = rig.submit(tail(9, 90), "other", max_tokens=30, save_tip=False)
        while not started(rig, second):
            assert not started(rig, other)
            rig.step()
        rig.run()
        assert rig.output(other) == oracle(tail(9, 90), 30)

    def test_lets_shorter_ones_pass(self) -> None:
        rig = Rig(lanes=2, budget=Budget(50, 50, 4))
        _, second = submit_all(rig, prompts(2))
        rig.step()
        other = rig.submit(tail(9, 10), "other", max_tokens=1, save_tip=False)
        rig.step()
        assert rig.output(other)
        assert not started(rig, second)

    def test_is_never_waiting_for_those_who_overtake_the_leader(self) -> None:
        """Alone it would go before the 300; so must the leader while it's on the common part."""
        rig = Rig(lanes=4, device_cells=400)
        rig.submit([*HEAD, *tail(1, 180)], "long", max_tokens=1, save_tip=False)
        rig.step()
        short = rig.submit([*HEAD, *tail(2, 10)], "short", max_tokens=1, save_tip=False)
        middle = rig.submit(tail(3, 300), "middle", max_tokens=1, save_tip=False)
        before = rig.model.computed_tokens
        while not rig.output(short):
            rig.step()
        assert rig.model.computed_tokens - before <= 210 + 64
        assert not rig.output(middle)
        rig.run()

    def test_ends_when_the_checkpoint_could_not_be_kept(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rig = Rig(lanes=4)
        monkeypatch.setattr(rig.cache, "save", lambda *_: None)
        requests = submit_all(rig, prompts(3))
        rig.run()
        verify(rig, prompts(3), requests)


class TestTheLeaderGoes:
    @pytest.mark.parametrize(("steps", "alone"), [(0, 20), (1, 20), (2, 20), (3, 28)])
    def test_cancelled_another_goes_on_from_its_progress(self, steps: int, alone: int) -> None:
        """After three steps 8 common tokens are left: too few to wait for."""
        rig = Rig(lanes=4)
        requests = submit_all(rig, prompts(4))
        for _ in range(steps):
            rig.step()
        rig.cancel(requests[0])
        assert rig.cache.lanes.free == 4
        assert rig.cache.pages.in_lanes == 0
        rig.run()
        assert rig.finished(requests[0]).reason is FinishReason.CANCELLED
        verify(rig, prompts(4)[1:], requests[1:])
        assert rig.model.computed_tokens == 220 - alone + 3 * alone

    def test_failed_another_takes_over(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rig = Rig(lanes=4)
        requests = submit_all(rig, prompts(3))
        rig.step()
        (lane,) = rig.scheduler.running
        real = rig.cache.reserve
        calls: list[int] = []

        def failing(which: int, tokens: int, now: float) -> bool:
            calls.append(which)
            if len(calls) == 1:
                raise ValueError("no page")
            return real(which, tokens, now)

        monkeypatch.setattr(rig.cache, "reserve", failing)
        rig.run()
        assert calls[0] == lane
        assert isinstance(rig.end(requests[0]), Failed)
        verify(rig, prompts(3)[1:], requests[1:])
        assert rig.model.computed_tokens == 64 + len(HEAD) + 2 * 20

    def test_followers_can_go_before_it(self) -> None:
        rig = Rig(lanes=4)
        requests = submit_all(rig, prompts(4))
        rig.step()
        for follower in requests[1:3]:
            rig.cancel(follower)
            assert rig.finished(follower).reason is FinishReason.CANCELLED
        rig.run()
        verify(rig, [prompts(4)[0], prompts(4)[3]], [requests[0], requests[3]])
        assert rig.model.computed_tokens == len(HEAD) + 2 * 20

    def test_all_go(self) -> None:
        rig = Rig(lanes=4)
        for request in submit_all(rig, prompts(4)):
            rig.step()
            rig.cancel(request)
        assert not rig.loop.turns
        assert not rig.scheduler.following.urgency()
        assert rig.output(rig.ask(HEAD, "after", max_tokens=1)) == oracle(HEAD, 1)
