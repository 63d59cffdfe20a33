"""Each policy on tiny traces that were worked out by hand. A block has 64 tokens, the first one is the head."""

from collections.abc import Sequence
from itertools import pairwise

import pytest

from ninfer_proxy.simulate.budget import Budget
from ninfer_proxy.simulate.comparison import POLICIES, compare
from ninfer_proxy.simulate.replay import Result, replay
from ninfer_proxy.simulate.request import Request
from ninfer_proxy.simulate.workload import workload
from tests.pure.simulated import COST, appending, recorded, row, together, trace

ONE = Budget(slots=1)


def run(name: str, requests: Sequence[Request], budget: Budget) -> Result:
    return replay(POLICIES[name](requests, budget, COST), requests, COST)


def reused(name: str, requests: Sequence[Request], budget: Budget = ONE) -> tuple[int, ...]:
    return run(name, requests, budget).reused


# --- one conversation --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "second"),
    [
        ("ours", 158),
        ("lru_slots", 158),
        ("private_cells", 158),
        ("block_lru", 0),  # no border yet
        ("optimum", 158),
    ],
)
def test_a_turn_appended_to_an_answer(name: str, second: int) -> None:
    requests = together(trace([row(0, [1, 2], out=30), row(9, [1, 2, 3, 4])]))
    assert reused(name, requests) == (0, second)


@pytest.mark.parametrize(
    ("name", "second"),
    [
        ("ours", 256),  # 256 tokens before the prompt's end of 512
        ("lru_slots", 0),  # a prompt's end is all there is
        ("private_cells", 0),
        ("block_lru", 0),
        ("optimum", 448),
    ],
)
def test_a_rewritten_tail(name: str, second: int) -> None:
    requests = together(trace([row(0, range(8)), row(9, [*range(7), 90, 91])]))
    assert reused(name, requests) == (0, second)


@pytest.mark.parametrize(
    ("name", "second"),
    [("ours", 64), ("lru_slots", 0), ("private_cells", 0), ("block_lru", 0), ("optimum", 64)],
)
def test_a_compaction_that_keeps_the_head(name: str, second: int) -> None:
    requests = together(trace([row(0, range(8)), row(9, [0, 90, 91])]))
    assert reused(name, requests) == (0, second)


@pytest.mark.parametrize(
    ("name", "reuse"),
    [
        ("ours", (0, 350, 320)),
        ("lru_slots", (0, 350, 320)),
        ("private_cells", (0, 350, 320)),
        ("block_lru", (0, 0, 0)),
        ("optimum", (0, 350, 320)),
    ],
)
def test_a_turn_asked_again(name: str, reuse: tuple[int, ...]) -> None:
    """The third prompt goes on from the first one's end otherwise than the second did."""
    rows = [row(0, range(5), out=30), row(9, range(7)), row(18, [*range(5), 90])]
    assert reused(name, together(trace(rows))) == reuse


def test_a_prompt_that_comes_again_has_one_token_left_to_compute() -> None:
    requests = together(trace([row(0, range(8)), row(9, range(8))]))
    assert reused("optimum", requests) == (0, 511)
    assert reused("ours", requests) == (0, 256)


def test_blocks_are_reused_up_to_their_last_border() -> None:
    requests = together(trace([row(0, range(9)), row(9, range(10)), row(18, range(20))]))
    assert reused("block_lru", requests) == (0, 528, 528)


# --- several conversations ---------------------------------------------------------------------


@pytest.mark.parametrize("name", POLICIES)
def test_two_conversations_in_one_slot(name: str) -> None:
    """a at 0, 100 and 300 with 4, 5 and 6 blocks, b at 200: with one slot a's last turn begins anew."""
    requests = together(appending([0, 100, 300]), appending([200]))
    found = run(name, requests, ONE)
    again = 0 if name == "block_lru" else 256
    assert found.reused == (0, again, 0, 0)
    assert found.prefilled_tokens == 256 + 320 - again + 256 + 384
    assert run(name, requests, Budget(slots=2)).reused == (0, again, 0, again and 320)


def test_the_optimum_knows_who_comes_back() -> None:
    """In two slots b, which comes first, is kept for a and c; least recently used would give up a at c's turn, and it returns."""
    requests = together(appending([0, 40]), appending([10]), appending([20]))
    assert reused("optimum", requests, Budget(slots=2)) == (0, 0, 0, 256)
    assert reused("ours", requests, Budget(slots=2)) == (0, 0, 0, 0)


def test_the_optimum_keeps_the_longer_of_two() -> None:
    """Both come back after c, and there is room for one: the one of ten blocks, though the short one returns sooner."""
    requests = together(appending([0, 50], 4), appending([10, 60], 10), appending([20]))
    found = run("optimum", requests, Budget(slots=2))
    assert found.reused == (0, 0, 0, 0, 640)
    assert found.evictions == 1


def test_a_long_dead_cell_outlives_short_ones_that_are_used() -> None:
    """The long conversation never comes back. Its cell stays, and two short ones evict each other."""
    requests = together(appending([0], 20), appending([10, 30], 2), appending([20, 40], 2))
    cells = run("private_cells", requests, Budget(slots=2))
    assert (cells.reused, cells.evictions) == ((0, 0, 0, 0, 0), 3)
    slots = run("lru_slots", requests, Budget(slots=2))
    assert (slots.reused, slots.evictions) == ((0, 0, 0, 128, 128), 1)


def test_there_are_twelve_cells_however_many_slots() -> None:
    requests = together(*(appending([at, at + 100]) for at in range(13)))
    assert run("private_cells", requests, Budget(slots=20)).evictions > 0
    assert run("ours", requests, Budget(slots=20)).evictions == 0


def test_a_finished_subagent_makes_way_first() -> None:
    """The sub-agent is used last, and still the main line stays when another conversation comes."""
    agent = trace([row(0, [70, 71])]) | {
        "t": 12.0,
        "type": "subagent",
        "agent_id": "x",
        "duration_ms": 2000,
    }
    requests = together(trace([row(0, range(4)), agent, row(40, range(5))]), appending([20]))
    assert reused("ours", requests, Budget(slots=2)) == (0, 0, 0, 256)
    assert reused("lru_slots", requests, Budget(slots=2)) == (0, 0, 0, 0)


def test_who_waits_for_a_tool_stays() -> None:
    """a was used before b, but its tool is on the way when c comes."""
    calling = row(0, range(4), out=30, stop="tool_use")
    back = row(40, range(6), input_types=["tool_result"])
    requests = together(trace([calling, back]), appending([10]), appending([20]))
    assert reused("ours", requests, Budget(slots=2)) == (0, 0, 0, 286)
    assert reused("lru_slots", requests, Budget(slots=2)) == (0, 0, 0, 0)


def test_subagents_share_their_beginning() -> None:
    """The second sub-agent goes on from the first one's head."""
    agents = [
        trace([row(0, [70, 71 + number])])
        | {"t": 12.0 + number, "type": "subagent", "agent_id": f"x{number}", "duration_ms": 2000}
        for number in range(2)
    ]
    requests = together(trace([row(0, range(4)), *agents]))
    assert reused("ours", requests, Budget(slots=3)) == (0, 0, 64)
    assert reused("optimum", requests, ONE) == (0, 0, 64)
    assert reused("lru_slots", requests, Budget(slots=3)) == (0, 0, 0)


def test_more_requests_than_slots_run_nevertheless() -> None:
    requests = together(*(trace([row(0, range(4), api_time=50.0)]) for _ in range(3)))
    for name in POLICIES:
        assert run(name, requests, ONE).reused == (0, 0, 0)


# --- bytes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ours", "lru_slots", "private_cells", "optimum"])
def test_what_fits_is_kept(name: str) -> None:
    """1,000 bytes a token, 50,000 a state: 2 MB are more than the 576 tokens and their states at a's last turn."""
    requests = together(appending([0, 100, 300]), appending([200]))
    assert reused(name, requests, Budget(bytes=2_000_000)) == (0, 256, 0, 320)


@pytest.mark.parametrize("name", ["ours", "lru_slots", "private_cells", "block_lru", "optimum"])
def test_what_does_not_fit_is_dropped(name: str) -> None:
    """300,000 bytes hold b's 256 tokens and nothing of a's 320 beside them; the optimum counts tokens only and keeps 44."""
    requests = together(appending([0, 300], 5), appending([200]))
    last = 44 if name == "optimum" else 0
    assert reused(name, requests, Budget(bytes=300_000)) == (0, 0, last)


def test_what_was_dropped_leaves_its_room() -> None:
    """Two conversations of 320 tokens and two states fit into 900,000 bytes: the fourth has its room, and returns to its state."""
    requests = together(*(appending([at], 5) for at in (0, 10, 20)), appending([30, 40], 5))
    assert reused("ours", requests, Budget(bytes=900_000)) == (0, 0, 0, 0, 320)


# --- what it comes to --------------------------------------------------------------------------


def test_time_is_computing_and_bringing_back() -> None:
    """1,000 tokens a second; 256 tokens and a state of 306,000 bytes come back in 0.306 ms."""
    found = run("ours", together(appending([0, 100])), ONE)
    assert found.time_s == pytest.approx(0.256 + 0.064 + 0.000306)


def test_a_slot_is_held_until_it_is_given_up() -> None:
    requests = together(appending([0, 100, 300]), appending([200]))
    stays = run("ours", requests, ONE).stays
    assert [(stay.slot, stay.conversation, stay.begins, stay.ends) for stay in stays] == [
        (0, "a", 0.0, 200.0),
        (0, "b", 200.0, 300.0),
        (0, "a", 300.0, 301.0),
    ]


def test_the_figures_as_json() -> None:
    requests = together(appending([0, 100, 300]), appending([200]))
    view = compare(requests, ONE, COST, ["ours"]).view()
    assert view == {
        "slots": 1,
        "bytes": None,
        "conversations": 2,
        "requests": 4,
        "policies": [
            {
                "policy": "ours",
                "prompt_tokens": 1216,
                "prefilled_tokens": 960,
                "prefilled_share": 0.789474,
                "against_optimum": 1.0,
                "time_lost_s": 0.3,
                "evictions": 2,
            }
        ],
    }


def test_the_recorded_traces_stay_near_the_optimum() -> None:
    """The bar: at most 1.10 × the optimum with twelve slots, and less than every other policy."""
    requests = workload(recorded(), spread=7200)
    found = {each.policy: each for each in compare(requests, Budget(slots=12), COST).results}
    assert found["ours"].prefilled_tokens <= 1.10 * found["optimum"].prefilled_tokens
    others = found.keys() - {"ours", "optimum"}
    assert all(found[name].prefilled_tokens > found["ours"].prefilled_tokens for name in others)


def test_one_conversation_holds_one_slot() -> None:
    """Whatever the recorded clients do; and nobody needs a thirteenth slot."""
    requests = workload(recorded(), spread=7200)
    stays = run("ours", requests, Budget(slots=12)).stays
    assert {stay.slot for stay in stays} == set(range(12))
    for name in {stay.conversation for stay in stays}:
        own = sorted((stay.begins, stay.ends) for stay in stays if stay.conversation == name)
        assert all(ends <= begins for (_, ends), (begins, _) in pairwise(own)), name
