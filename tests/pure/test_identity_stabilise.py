"""Steady heads: what is changed in a head before the engine sees it, to the character, and that nothing else is."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from identity_talk import TOOLS, said, turn, user

from ninfer_proxy.compared import Unsteady
from ninfer_proxy.identity.stabilise import Steady, stabilise, steady_tools
from ninfer_proxy.identity.volatile import steadied
from ninfer_proxy.items import item_from_raw
from ninfer_proxy.types import Item, MessageItem, ToolSpec
from tests import recordings

EVERY = frozenset(Unsteady)
CLOCK, ATTRIBUTION = frozenset({Unsteady.CLOCK}), frozenset({Unsteady.ATTRIBUTION})


def system(text: str) -> Item:
    return item_from_raw({"type": "message", "role": "system", "content": text})


def clockless(text: str) -> str:
    return steadied(text, CLOCK)[0]


@pytest.mark.parametrize(
    ("text", "steady"),
    [
        ("Current time: 2031-05-04 10:11:07", "Current time: 2031-05-04 --:--"),
        ("The current date is 2031-05-04T10:11:07.123Z.", "The current date is 2031-05-04T--:--Z."),
        ("Current datetime = 2031-05-04T10:11:07+02:00", "Current datetime = 2031-05-04T--:--+02:00"),
        ("Today is Friday, 30 January, 10:11:12 AM PST", "Today is Friday, 30 January, --:-- PST"),
        ("You help. The current time is 9:05 p.m. Be brief.", "You help. The current time is --:-- Be brief."),
        ("It is 10:12.", "It is --:--."),
        ("- Time: 7:05\n- Zone: UTC+05:30", "- Time: --:--\n- Zone: UTC+05:30"),
        ("<time>10:11</time>", "<time>--:--</time>"),
        ("System time (UTC): 04:05:06", "System time (UTC): --:--"),
    ],
)  # fmt: skip
def test_the_time_of_day_is_hidden_where_a_sentence_tells_it(text: str, steady: str) -> None:
    assert clockless(text) == steady
    assert clockless(steady) == steady


@pytest.mark.parametrize(
    "text",
    [
        "Meetings start at 9:00.",
        "At the same time, meetings start at 9:00: bring tea.",
        "Romans 8:28, a ratio of 16:9.",
        "**Stay quiet when:** it is 23:00-08:00 unless urgent.",
        "Current date: 2026-11-30\nTime zone: UTC",
        "Your uptime: 3 days",
        "",
    ],
)
def test_other_times_stay(text: str) -> None:
    assert steadied(text, CLOCK) == (text, ())


def test_recorded_heads_have_no_clock_and_keep_every_character() -> None:
    """No recorded client tells the time in its head, so nothing that looks like a time is one."""
    looked = 0
    for name in recordings.names():
        for raw in recordings.rows(name):
            for text in system_texts(raw.get("body")):
                looked += 1
                assert steadied(text, CLOCK)[1] == (), name
    assert looked > 150


def system_texts(body: Any) -> list[str]:
    if not isinstance(body, dict):
        return []
    items = [*(body.get("input") or ()), *(body.get("messages") or ())]
    heads = [i for i in items if isinstance(i, dict) and i.get("role") in ("system", "developer")]
    parsed = [item_from_raw({"type": "message"} | each) for each in heads]
    texts = [item.text for item in parsed if isinstance(item, MessageItem)]
    return [text for text in (body.get("instructions"), *texts) if text]


def test_attribution_lines_are_left_out_with_their_line_end() -> None:
    line = "x-anthropic-billing-header: cc_version=2.1.332.066; cc_entrypoint=sdk-cli;"
    text, (rewrite,) = steadied(f"{line}\nBe brief.", ATTRIBUTION)
    assert (text, rewrite.was, rewrite.written) == ("Be brief.", line, "")
    assert steadied(f"A\n{line}\nB", ATTRIBUTION)[0] == "A\nB"
    assert steadied(f"Say {line}", ATTRIBUTION)[1] == ()


def test_nothing_is_changed_that_is_not_asked_for() -> None:
    asked = turn(user("Hi"), instructions="x-a-billing: 1\nIt is 10:11.", tools=(*TOOLS[::-1],))
    steady = stabilise(asked, asked.items, ())
    assert steady == Steady(asked, asked.items, steady.sent)
    assert stabilise(asked, asked.items, CLOCK).turn.instructions == "x-a-billing: 1\nIt is --:--."
    assert stabilise(asked, asked.items, CLOCK).turn.tools == asked.tools


def test_only_the_head_is_changed_and_what_was_sent_is_kept() -> None:
    telling = "It is 10:11."
    items = (system(telling), system("Be brief."), user(telling), system(telling), said(telling))
    asked = turn(*items, instructions=telling)
    steady = stabilise(asked, items, EVERY)
    assert steady.turn.instructions == "It is --:--."
    assert [getattr(item, "text", "") for item in steady.items] == [
        "It is --:--.", "Be brief.", telling, telling, telling,
    ]  # fmt: skip
    assert [item.raw for item in steady.items] == [item.raw for item in items]
    assert steady.sent.instructions == telling
    assert steady.sent.leading == items[:2]
    assert steady.changes == (
        "clock: “10:11” in the instructions became “--:--”",
        "clock: “10:11” in item 0 became “--:--”",
    )


def test_tools_are_put_in_order_of_their_names() -> None:
    tools = tuple(ToolSpec(name, None, {}) for name in ("run", "find", "read"))
    steady, changes = steady_tools(tools, {Unsteady.TOOL_ORDER})
    assert [tool.name for tool in steady] == ["find", "read", "run"]
    assert changes == ("tool_order: tools were sorted by name: tools[0] was run, is find",)
    assert steady_tools(steady, {Unsteady.TOOL_ORDER}) == (steady, ())


def test_keys_of_parameters_are_put_in_order_at_every_depth() -> None:
    sent = ToolSpec("f", "F", {"b": [{"y": 1, "x": 2}], "a": {"d": 1, "c": ["z", "y"]}})
    (steady,), changes = steady_tools((sent,), {Unsteady.TOOL_KEYS})
    assert repr(steady.parameters) == "{'a': {'c': ['z', 'y'], 'd': 1}, 'b': [{'x': 2, 'y': 1}]}"
    assert changes == ("tool_keys: keys in the parameters of 1 tool (f) were put in order",)
    assert steady_tools((steady,), {Unsteady.TOOL_KEYS}) == ((steady,), ())


texts = st.lists(
    st.sampled_from(
        ["It is 10:11.", " now", "\n", "x-a-billing: 1", "Time: 9:0", "0", "--:--", "é"]
    ),
    max_size=8,
).map("".join)


@settings(max_examples=60, deadline=None)
@given(texts, st.sets(st.sampled_from([*Unsteady])))
def test_steadying_twice_changes_nothing_more(text: str, kinds: set[Unsteady]) -> None:
    once, rewrites = steadied(text, kinds)
    assert {rewrite.kind for rewrite in rewrites} <= kinds
    assert (once == text) == (not rewrites)
    if Unsteady.ATTRIBUTION not in kinds:
        assert steadied(once, kinds) == (once, ())
