"""The proxy bench's own reasoning: how conversations grow, which figure counts, what the table shows. No proxy runs here."""

import json

import pytest

from bench.proxy_cases import CASES, planning, recognising, simulating
from bench.proxy_cases.given import at
from bench.proxy_cases.turns import ITEM_BYTES, ITEMS
from bench.registry import Measured, WrongAnswer
from bench.report import BESIDE, Row, table
from bench.stored import ITEMS as STORED_ITEMS
from bench.stored import talk, turn_of
from bench.talks import CALLS_A_ROUND, Talk

CALL = {"type": "function_call", "call_id": "call_1", "name": "tool_0", "arguments": "{}"}
WORDS = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]}


def grown(name: str) -> Talk:
    grows = Talk(name, ITEM_BYTES)
    while len(grows.items) < ITEMS:
        for _ in range(CALLS_A_ROUND):
            grows.hear([CALL])
        grows.hear([WORDS])
    return grows


def test_a_history_of_that_many_items_has_about_that_many_bytes() -> None:
    grows = grown("a")
    size = len(json.dumps(grows.items)) * ITEMS / len(grows.items)
    assert 450_000 < size < 550_000
    assert grows.items == grown("a").items
    assert grows.items != grown("b").items


def test_a_client_answers_calls_and_asks_on_behind_words() -> None:
    grows = Talk("a", 100)
    grows.hear([CALL])
    grows.hear([WORDS])
    kinds = [item["type"] for item in grows.items]
    assert kinds == ["message", "function_call", "function_call_output", "message", "message"]
    assert grows.items[-1]["role"] == "user"


def test_stored_conversations_are_told_apart_by_session_or_by_words() -> None:
    assert len(talk(4)) == STORED_ITEMS
    assert talk(4)[0] == talk(6)[0]
    assert talk(5)[0] != talk(7)[0]
    assert turn_of(4, talk(4)).client.headers == {"x-session-id": "session-4"}
    assert turn_of(5, talk(5)).client.headers == {}


def test_the_worse_growth_counts() -> None:
    measured = recognising.told([([1.0, 1.0], [2.0, 2.0]), ([1.2, 1.2], [2.2, 2.2])])
    assert measured.figure == pytest.approx(1.2)


def test_a_share_of_the_times() -> None:
    times = [float(number) for number in range(100, 0, -1)]
    assert (at(times, 0.5), at(times, 0.99), at([7.0], 0.99)) == (51.0, 100.0, 7.0)


def test_wrong_plans_and_impossible_simulations_are_not_timed() -> None:
    slots = [planning.slot(number) for number in range(planning.CONTINUATIONS)]
    made = planning.plan(slots, 4, planning.Policy(slots=planning.CONTINUATIONS))
    planning.require(made, 4)
    with pytest.raises(WrongAnswer):
        planning.require(made, 6)
    policies = [
        {"policy": name, "prompt_tokens": 9, "prefilled_tokens": tokens}
        for name, tokens in (("ours", 3), ("optimum", 2))
    ]
    assert simulating.require(policies) == 1.5
    policies[0]["prefilled_tokens"] = 1
    with pytest.raises(WrongAnswer, match="less than the optimum"):
        simulating.require(policies)


def test_the_table_leaves_out_what_is_empty() -> None:
    lines = table([Row(CASES[0], "", Measured("a", "b", 1.0))], BESIDE).splitlines()
    assert lines[0].split() == ["case", "ours", "beside", "it", "figure", "bar"]
    assert lines[2].split() == [CASES[0].name, "a", "b", "1.00", "ms", "≤", "8", "ms", "met"]
    names = [case.name for case in CASES]
    assert len(names) == len(set(names)) == 7
