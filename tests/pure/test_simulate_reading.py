"""Lines that have runs in common, and traces read as requests."""

import json

import pytest

from ninfer_proxy.errors import CommandRefused
from ninfer_proxy.simulate.line import Line
from ninfer_proxy.simulate.schedule import Happens, schedule
from ninfer_proxy.simulate.workload import workload
from ninfer_proxy.types import FunctionCallItem, FunctionOutputItem, MessageItem
from tests.pure.simulated import recorded, row, together, trace


def test_lines_share_what_they_begin_with() -> None:
    head = Line.root().extended("head", 100)
    one = head.extended("question", 40).extended("answer", 20)
    other = head.extended("question", 30).extended("another", 50)
    assert one.shared(other) == 130
    assert one.shared(one) == 160
    assert one.shared(head) == 100
    assert head.extended("question", 40) is one.parent
    assert one.shared(Line.root().extended("head", 100)) == 0, "another tenant's"


def test_a_cut_line_is_the_same_wherever_it_was_cut() -> None:
    head = Line.root().extended("head", 100)
    long, short = head.extended("question", 40), head.extended("question", 30)
    assert long.cut(120) is short.cut(120)
    assert long.cut(100) is head
    assert long.cut(500) is long
    assert short.cut(120).begins(long)
    assert short.begins(long)
    assert not long.begins(short)
    assert not long.begins(head)


def test_an_appended_prompt_has_the_answer_in_it() -> None:
    first, second = together(trace([row(0, [1, 2], out=30), row(9, [1, 2, 3, 4])]))
    assert first.whole.end == 158
    assert second.line.shared(first.whole) == 158
    assert list(second.turn.items) == [
        MessageItem("user", "a#0:0-64", {}),
        MessageItem("assistant", "answer a#0", {}),
        MessageItem("user", "a#1:0-98", {}),
    ]
    assert second.borders == (32, 64, 128, 158, 256)
    assert second.named == ("a",)


def test_an_answer_longer_than_what_was_appended_was_written_otherwise() -> None:
    _, second = together(trace([row(0, [1, 2], out=90), row(9, [1, 2, 3])]))
    assert second.borders == (32, 64, 128, 191, 192)
    assert len(second.turn.items) == 3


def test_a_rewritten_tail_shares_whole_blocks() -> None:
    first, second = together(trace([row(0, [1, 2, 3], out=9), row(9, [1, 2, 4, 5])]))
    assert second.line.shared(first.whole) == 128
    assert second.identity.chain[0] != first.identity.chain[0]
    assert len(second.turn.items) == 1


def test_a_compacted_prompt_keeps_a_head_that_ends_within_a_block() -> None:
    first, second = together(
        trace([row(0, [1, 2, 3]), row(9, [1, 7, 8])], tool_tokens=40, system_tokens=60)
    )
    assert second.line.shared(first.line) == 100
    assert second.identity.head == first.identity.head


def test_another_head_has_the_same_items_under_it() -> None:
    """The first block, which is the head, is another one, and so are all block ids behind it."""
    rows = [row(0, [1, 2, 3], out=64), row(9, [11, 12, 13, 14, 15])]
    first, second = together(trace(rows))
    assert second.line.shared(first.whole) == 0
    assert second.identity.head != first.identity.head
    assert second.identity.chain[:2] == first.identity.chain + first.output
    assert second.borders == (32, 64, 192, 256, 320)


def test_a_shorter_prompt_with_another_head_is_a_new_history() -> None:
    first, second = together(trace([row(0, [1, 2, 3]), row(9, [11, 12])]))
    assert second.identity.chain[:1] != first.identity.chain[:1]


def test_tools_are_called_and_answered() -> None:
    calls = row(0, [1, 2], out=10, stop="tool_use")
    _, second = together(trace([calls, row(9, [1, 2, 3], input_types=["tool_result"])]))
    call, output = second.turn.items[-2:]
    assert isinstance(call, FunctionCallItem)
    assert isinstance(output, FunctionOutputItem)
    assert output.call_id == call.call_id


def test_a_subagent_began_before_it_was_done() -> None:
    agent = trace([row(0, [8, 9]), row(3, [8, 9, 10])]) | {
        "t": 60.0,
        "type": "subagent",
        "agent_id": "x",
        "duration_ms": 50_000,
    }
    requests = together(trace([row(0, [1]), agent, row(61, [1, 2])]))
    assert [(each.conversation, each.begins) for each in requests] == [
        ("a", 0.0),
        ("a/x", 10.0),
        ("a/x", 13.0),
        ("a", 61.0),
    ]
    assert requests[1].identity.is_subagent
    assert not requests[0].identity.is_subagent


def test_traces_begin_evenly_over_the_spread() -> None:
    one = trace([row(0, [1]), row(5, [1, 2])])
    requests = together(one, one, one, one, spread=80)
    assert [(each.conversation, each.begins) for each in requests[::2]] == [
        ("a", 0.0),
        ("b", 20.0),
        ("c", 40.0),
        ("d", 60.0),
    ]


def test_a_trace_given_twice_is_two_conversations() -> None:
    text = json.dumps(trace([row(0, [1, 2])]))
    one, other = workload([("x", text), ("x", text)], 0)
    assert (one.conversation, other.conversation) == ("x", "x~2")
    assert one.line.shared(other.line) == 0


def test_of_one_moment_ends_go_first() -> None:
    requests = together(trace([row(0, [1]), row(1, [1, 2])]), trace([row(1, [1])]))
    assert [(now, what.name, index) for now, what, index in schedule(requests)] == [
        (0.0, "BEGINS", 0),
        (1.0, "ENDS", 0),
        (1.0, "BEGINS", 1),
        (1.0, "BEGINS", 2),
        (2.0, "ENDS", 1),
        (2.0, "ENDS", 2),
    ]
    assert {Happens.ENDS, Happens.BEGINS} == set(Happens)


def test_recorded_prompts_have_in_common_what_their_blocks_say() -> None:
    """Against the block ids themselves: no line claims a block that differs, none misses more than the block a border lies in."""
    for name, text in recorded():
        rows = [each for each in json.loads(text)["requests"] if each["type"] != "subagent"]
        requests = [each for each in workload([(name, text)], 0) if "/" not in each.conversation]
        assert [each.prompt_tokens for each in requests] == [each["in"] for each in rows]
        for before, after, one, other in zip(requests, requests[1:], rows, rows[1:], strict=False):
            pairs = zip(one["hash_ids"], other["hash_ids"], strict=False)
            equal = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
            shared = after.line.shared(before.line)
            if equal is not None:
                assert 64 * equal <= shared < 64 * (equal + 1)
            elif other["in"] >= one["in"]:
                assert shared == one["in"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "trace x is no trace: "),
        ("[]", "trace x is no trace: it holds no object with `requests`."),
        ("{}", "trace x is no trace: it lacks 'tool_tokens'."),
        (json.dumps(trace([{"type": "n"}])), "trace x is no trace: it lacks 't'."),
    ],
)
def test_what_is_no_trace_is_named(text: str, said: str) -> None:
    with pytest.raises(CommandRefused) as refused:
        workload([("trace x", text)], 0)
    assert str(refused.value).startswith(said)
