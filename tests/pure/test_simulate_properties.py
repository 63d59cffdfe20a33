"""What holds for any workload: the optimum is the least, more room never hurts it, and nothing is reused that wasn't there."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer_proxy.simulate.budget import Budget
from ninfer_proxy.simulate.comparison import POLICIES
from ninfer_proxy.simulate.flow import Arc, cheapest
from ninfer_proxy.simulate.replay import Result, replay
from ninfer_proxy.simulate.request import Request
from ninfer_proxy.simulate.schedule import Happens, schedule
from tests.pure.simulated import COST, row, together, trace

MOVES = ("append", "append", "append", "rewrite", "compact", "again", "go_back")


@st.composite
def rows(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A conversation: mostly appends, sometimes one of the other things that clients do."""
    fresh = iter(range(1000))
    past = [[next(fresh) for _ in range(draw(st.integers(1, 12)))]]
    found: list[dict[str, Any]] = []
    now = draw(st.integers(0, 30))
    for _ in range(draw(st.integers(1, 5))):
        tool = draw(st.booleans())
        found.append(
            row(
                float(now),
                past[-1],
                out=draw(st.sampled_from([0, 10, 70, 200])),
                api_time=float(draw(st.integers(0, 20))),
                stop="tool_use" if tool else "end_turn",
                input_types=["tool_result"] if draw(st.booleans()) else ["text"],
            )
        )
        now += draw(st.integers(0, 60))
        blocks = list(past[-1])
        move = draw(st.sampled_from(MOVES))
        if move == "rewrite":
            blocks = blocks[: -draw(st.integers(1, 2))] or blocks
        elif move == "compact":
            blocks = blocks[:1]
        elif move == "go_back":
            blocks = list(draw(st.sampled_from(past)))
        if move != "again":
            blocks += [next(fresh) for _ in range(draw(st.integers(1, 5)))]
        past.append(blocks)
    return found


@st.composite
def workloads(draw: st.DrawFn) -> list[Request]:
    traces = []
    for _ in range(draw(st.integers(1, 4))):
        own = draw(rows())
        agents = draw(st.lists(rows(), max_size=2))
        own += [
            trace([each | {"hash_ids": [9000, *each["hash_ids"]]} for each in agent], tool_tokens=0)
            | {
                "t": float(draw(st.integers(0, 90))),
                "type": "subagent",
                "agent_id": f"x{number}",
                "duration_ms": 1000 * draw(st.integers(0, 60)),
            }
            for number, agent in enumerate(agents)
        ]
        traces.append(trace(own))
    return together(*traces, spread=float(draw(st.sampled_from([0, 100]))))


budgets = st.one_of(
    st.builds(Budget, slots=st.integers(1, 5)),
    st.builds(Budget, bytes=st.integers(1, 40).map(lambda each: each * 200_000)),
)


def run(name: str, requests: Sequence[Request], budget: Budget) -> Result:
    return replay(POLICIES[name](requests, budget, COST), requests, COST)


@settings(max_examples=150, deadline=None)
@given(workloads(), budgets)
def test_no_policy_is_better_than_the_optimum(requests: list[Request], budget: Budget) -> None:
    least = run("optimum", requests, budget).prefilled_tokens
    for name in POLICIES:
        assert least <= run(name, requests, budget).prefilled_tokens, name


@settings(max_examples=80, deadline=None)
@given(workloads(), budgets)
def test_nothing_is_reused_that_was_never_there(requests: list[Request], budget: Budget) -> None:
    """Each request's reuse is within what it shares with a line that began before it, found by comparing with all of them."""
    most: list[int] = [0] * len(requests)
    before: list[Request] = []
    for _, what, index in schedule(requests):
        if what is Happens.BEGINS:
            shared = [requests[index].line.shared(other.whole) for other in before]
            most[index] = min(max(shared, default=0), requests[index].prompt_tokens - 1)
            before.append(requests[index])
    for name in POLICIES:
        found = run(name, requests, budget).reused
        assert all(0 <= reuse <= limit for reuse, limit in zip(found, most, strict=True)), name


@settings(max_examples=80, deadline=None)
@given(workloads(), st.integers(1, 4), st.integers(1, 20))
def test_more_room_never_hurts_the_optimum(requests: list[Request], slots: int, room: int) -> None:
    found = [
        run("optimum", requests, Budget(slots=slots + more)).prefilled_tokens for more in (0, 1, 9)
    ]
    assert found == sorted(found, reverse=True)
    sizes = [
        run("optimum", requests, Budget(bytes=room * 100_000 * more)).prefilled_tokens
        for more in (1, 2, 9)
    ]
    assert sizes == sorted(sizes, reverse=True)


@settings(max_examples=40, deadline=None)
@given(workloads(), budgets)
def test_the_same_again_gives_the_same(requests: list[Request], budget: Budget) -> None:
    for name in POLICIES:
        assert run(name, requests, budget) == run(name, requests, budget)


@settings(max_examples=150, deadline=None)
@given(workloads(), st.integers(1, 3))
def test_the_optimum_in_slots_is_the_best_choice_of_gaps(
    requests: list[Request], slots: int
) -> None:
    """Against all choices there are, with what is shared found by comparing lines one by one."""
    free, gaps, running = survey(requests)
    gaps = gaps[-10:]  # a thousand choices are enough; the rest is given up in both
    best = 0
    for count in range(len(gaps) + 1):
        for chosen in combinations(gaps, count):
            held = [
                sum(first <= at < last for first, last, _ in chosen) for at in range(len(running))
            ]
            if all(
                kept == 0 or kept + runs <= slots for kept, runs in zip(held, running, strict=True)
            ):
                best = max(best, sum(saves for _, _, saves in chosen))
    found = sum(run("optimum", requests, Budget(slots=slots)).reused)
    if len(survey(requests)[1]) <= 10:
        assert found == sum(free) + best
    else:
        assert found >= sum(free) + best


@settings(max_examples=100, deadline=None)
@given(workloads(), st.integers(1, 30))
def test_the_optimum_in_bytes_keeps_as_much_as_fits(requests: list[Request], room: int) -> None:
    """Belady's rule against a flow of tokens, where a gap may be kept in part."""
    capacity = room * 100
    free, gaps, _ = survey(requests)
    taken = tokens_taken(requests)
    arcs = [Arc(first, last, saves, -1) for first, last, saves in gaps if first < last]
    forced = [Arc(at, at + 1, min(each, capacity), -10_000) for at, each in enumerate(taken)]
    rest = [Arc(at, at + 1, capacity, 0) for at in range(len(taken))]
    flows = cheapest([*arcs, *forced, *rest], len(taken) + 1, capacity)
    at_once = sum(saves for first, last, saves in gaps if first == last)
    found = sum(run("optimum", requests, Budget(bytes=capacity * COST.token_bytes)).reused)
    assert found == sum(free) + at_once + sum(flows[: len(arcs)])


def tokens_taken(requests: Sequence[Request]) -> list[int]:
    """At each begin: what running conversations have in their prompts that no other one had had."""
    begun: list[Request] = []
    running: dict[Request, int] = {}
    found: list[int] = []
    for _, what, index in schedule(requests):
        request = requests[index]
        if what is Happens.ENDS:
            del running[request]
            continue
        others = [each for each in begun if each.conversation != request.conversation]
        lines = [each.line if each in running else each.whole for each in others]
        shared = max((request.line.shared(line) for line in lines), default=0)
        running[request] = request.prompt_tokens - min(shared, request.prompt_tokens - 1)
        begun.append(request)
        names = {each.conversation for each in running}
        most = (max(n for r, n in running.items() if r.conversation == name) for name in names)
        found.append(sum(most))
    return found


def survey(
    requests: Sequence[Request],
) -> tuple[list[int], list[tuple[int, int, int]], list[int]]:
    """(tokens each request has for nothing, gaps as (first begin, last begin, saves), conversations running at each begin)."""
    begun: list[Request] = []
    ended: list[Request] = []
    free: list[int] = []
    gaps: list[tuple[int, int, int]] = []
    running: list[int] = []
    rests: dict[str, int] = {}
    for _, what, index in schedule(requests):
        request = requests[index]
        if what is Happens.ENDS:
            ended.append(request)
            rests[request.conversation] = len(running)
            continue
        name, most = request.conversation, request.prompt_tokens - 1
        lines = [(each, each.whole if each in ended else each.line) for each in begun]
        own = [request.line.shared(line) for each, line in lines if each.conversation == name]
        other = [request.line.shared(line) for each, line in lines if each.conversation != name]
        has_own, has_other = min(max(own, default=0), most), min(max(other, default=0), most)
        runs = {each.conversation for each in begun if each not in ended}
        free.append(max(has_own, has_other) if name in runs else has_other)
        if name not in runs and name in rests and has_own > has_other:
            gaps.append((rests[name], len(running), has_own - has_other))
        running.append(len(runs | {name}))
        begun.append(request)
    return free, gaps, running


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 6), st.integers(1, 3)), max_size=6),
    st.integers(1, 6),
)
def test_a_flow_of_least_cost_keeps_as_much_as_fits(
    spans: list[tuple[int, int, int]], room: int
) -> None:
    """Spans that are worth their size: as much of them as fits, against what each choice of whole units comes to."""
    arcs = [Arc(at, at + 1, room, 0) for at in range(11)]
    whole = [Arc(start, start + length, size, -1) for start, length, size in spans]
    flows = cheapest([*arcs, *whole], 12, room)[11:]
    assert all(0 <= flow <= arc.capacity for flow, arc in zip(flows, whole, strict=True))
    for at in range(11):
        crossing = [f for f, arc in zip(flows, whole, strict=True) if arc.tail <= at < arc.head]
        assert sum(crossing) <= room
    units = [(start, start + length) for start, length, size in spans for _ in range(size)][:10]
    if len(units) == sum(size for _, _, size in spans):
        best = max(
            count
            for count in range(len(units) + 1)
            for some in combinations(units, count)
            if all(sum(a <= at < b for a, b in some) <= room for at in range(11))
        )
        assert sum(flows) == best
