"""Nothing starves: who generates gets a token in each step, short prompts pass long ones, and those are passed by no more than their length."""

from collections import defaultdict
from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.api import RequestId
from engine.planner.order import Waiter, next_in_line, patience
from engine.planner.step import Budget, Lineup, StepPlan, plan_step
from engine.sequence import Work
from tests.engine.fake_model import oracle
from tests.engine.rig import BUDGET, Rig


@dataclass
class Prompt:
    """One prompt of the simulation; `passed` counts tokens of later arrivals in steps that gave it less than it could use."""

    arrival: int
    length: int
    stop_every: int
    computed: int = 0
    overtaken: int = 0
    passed: int = 0

    @property
    def left(self) -> int:
        return self.length - self.computed

    @property
    def patience(self) -> int:
        return max(self.left - self.overtaken, 0)

    def lineup(self) -> Lineup:
        until_stop = min(self.stop_every - self.computed % self.stop_every, self.left)
        return Lineup(self.arrival, self.arrival, self.left, until_stop, False, self.overtaken)


@dataclass
class Planner:
    """Steps of the pure planner over prompts in as many lanes as they need, beside `decodes` streams."""

    budget: Budget
    prompts: dict[int, Prompt] = field(default_factory=dict)
    done: list[Prompt] = field(default_factory=list)

    def step(self, decodes: int) -> StepPlan:
        before = dict(self.prompts)
        streams = [Lineup(1000 + n, -1, 1, 1, True, 0) for n in range(decodes)]
        lineups = [each.lineup() for each in before.values()]
        plan = plan_step([*lineups, *streams], self.budget)
        assert {chunk.lane for chunk in plan.urgent} == {each.lane for each in streams}
        given_to = {chunk.lane: chunk.tokens for chunk in plan.prompts}
        for each in lineups:
            if given_to.get(each.lane, 0) < each.until_stop:
                later = sum(tokens for lane, tokens in given_to.items() if lane > each.lane)
                before[each.lane].passed += later
        for lane, tokens in plan.overtaken:
            self.prompts[lane].overtaken += tokens
        for lane, tokens in given_to.items():
            prompt = self.prompts[lane]
            prompt.computed += tokens
            if not prompt.left:
                self.done.append(self.prompts.pop(lane))
        return plan


arrivals = st.lists(
    st.tuples(
        st.integers(0, 4),  # steps since the one before
        st.integers(1, 600),  # its length
        st.sampled_from([7, 64, 1000]),  # tokens between its checkpoints
        st.integers(0, 2),  # streams that generate meanwhile
    ),
    min_size=2,
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(arrivals)
def test_a_prompt_is_passed_by_no_more_than_its_length(
    schedule: list[tuple[int, int, int, int]],
) -> None:
    planner, decodes = Planner(BUDGET), 0
    for number, (steps, length, stop_every, decodes) in enumerate(schedule):
        for _ in range(steps):
            planner.step(decodes)
        planner.prompts[number] = Prompt(number, length, stop_every)
    while planner.prompts:
        before = sum(each.left for each in planner.prompts.values())
        planner.step(decodes)
        assert sum(each.left for each in planner.prompts.values()) < before
    for each in planner.done:
        assert each.passed <= each.length + BUDGET.alone


@given(st.lists(st.tuples(st.integers(1, 600), st.integers(0, 700)), min_size=1), st.integers(0, 2))
def test_the_shortest_is_served_first_and_the_impatient_before_it(
    shapes: list[tuple[int, int]], decodes: int
) -> None:
    planner = Planner(BUDGET)
    for number, (length, overtaken) in enumerate(shapes):
        planner.prompts[number] = Prompt(number, length, 1000, overtaken=overtaken)
    first = min(planner.prompts.values(), key=lambda each: (each.patience, each.arrival))
    length = first.length
    plan = planner.step(decodes)
    assert plan.prompts[0].lane == first.arrival
    assert plan.prompts[0].tokens == min(length, BUDGET.mixed if decodes else BUDGET.alone)


@given(st.lists(st.tuples(st.integers(1, 600), st.integers(0, 700)), min_size=1, max_size=12))
def test_nobody_gets_a_lane_for_longer_than_those_before_it_have_patience(
    shapes: list[tuple[int, int]],
) -> None:
    queue = [Waiter(length, overtaken, at) for at, (length, overtaken) in enumerate(shapes)]
    place = next_in_line(queue)
    assert place is not None
    assert all(queue[place].estimate <= patience(e.estimate, e.overtaken) for e in queue[:place])
    calm = [Waiter(each.estimate, 0, each.arrival) for each in queue]
    shortest = min(calm, key=lambda each: (each.estimate, each.arrival))
    assert next_in_line(calm) == shortest.arrival


class Watched(Rig):
    """Notes for each step who computed how many tokens of its prompt, and who was generating."""

    def __init__(self, lanes: int) -> None:
        super().__init__(device_cells=600, lanes=lanes, max_waiting=60)
        self.prefilled: list[dict[RequestId, int]] = []
        self.filled: list[set[RequestId]] = []
        real = self.loop.runner.run

        def run(work: list[Work]) -> list[int | None]:
            prompts = [item for item in work if not item.sequence.urgent]
            self.prefilled.append({each.sequence.request_id: each.tokens for each in prompts})
            self.filled.append(
                {e.sequence.request_id for e in prompts if e.tokens == e.sequence.until_stop}
            )
            return real(work)

        self.loop.runner.run = run  # type: ignore[method-assign,assignment]


requests = st.lists(
    st.tuples(
        st.integers(0, 6),  # steps since the one before
        st.integers(1, 250),  # tokens of the prompt
        st.integers(1, 8),  # tokens to generate
    ),
    min_size=2,
    max_size=8,
)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 3), requests)
@example(1, [(0, 155, 1), (0, 154, 1), (0, 124, 1)])
def test_streams_and_prompts_in_the_engine(
    lanes: int, schedule: list[tuple[int, int, int]]
) -> None:
    rig = Watched(lanes)
    rig.loop.check_integrity = False
    asked: dict[RequestId, tuple[list[int], int]] = {}
    gaps: dict[RequestId, int] = defaultdict(int)

    def step() -> None:
        said = {request: len(rig.output(request)) for request in rig.loop.turns}
        rig.step()
        for request, before in said.items():
            speaking = 0 < before < asked[request][1]
            silent = speaking and len(rig.output(request)) == before
            gaps[request] = gaps[request] + 1 if silent else 0
            assert gaps[request] <= 1, "a gap of more than two steps between two tokens"

    begun: dict[RequestId, int] = {}
    for number, (steps, length, most) in enumerate(schedule):
        for _ in range(steps):
            step()
        tokens = [10 + number, *(10 + (number * 37 + at * 11) % 180 for at in range(length - 1))]
        request = rig.submit(tokens, f"c{number}", max_tokens=most, save_tip=False)
        asked[request], begun[request] = (tokens, most), len(rig.prefilled)
    while rig.loop.turns:
        step()
    order = list(asked)
    for place, request in enumerate(order):
        tokens, most = asked[request]
        assert rig.output(request) == oracle(tokens, most)
        last = max(at for at, each in enumerate(rig.prefilled) if request in each)
        passed = sum(
            rig.prefilled[at].get(later, 0)
            for at in range(begun[request], last + 1)
            if request not in rig.filled[at]
            for later in order[place + 1 :]
        )
        assert passed <= len(tokens) + BUDGET.alone


def test_a_mostly_cached_prompt_overtakes_a_long_one() -> None:
    rig = Rig(lanes=2)
    known = [10 + at * 7 % 180 for at in range(300)]
    rig.ask(known, "known", anchors=(290,), max_tokens=1, save_tip=False)
    long = rig.submit([20 + at * 13 % 170 for at in range(380)], "long", max_tokens=1)
    rig.step()
    cached = rig.submit([*known, 33, 34], "known", max_tokens=1)
    rig.step()
    assert rig.output(cached)
    assert not rig.output(long)
