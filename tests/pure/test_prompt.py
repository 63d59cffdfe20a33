"""Items → messages: which items share an assistant turn, where borders lie, which stretches may be one turn's output."""

from typing import Any

import pytest

from ninfer_proxy.prompt import (
    AssistantGroup,
    ReplayedOutput,
    build_prompt,
    cut_turns,
    layout,
    marked_borders,
    message_counts,
    possible_turns,
)
from ninfer_proxy.types import ClientEvidence as Evidence
from ninfer_proxy.types import (
    FunctionCallItem,
    FunctionOutputItem,
    Item,
    ItemDigest,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    TenantKey,
    Turn,
)

RAW: dict[str, Any] = {}
USER = MessageItem("user", "do it", RAW)
SYSTEM = MessageItem("system", "rules", RAW)
THOUGHT = ReasoningItem("hm", None, RAW)
SAID = MessageItem("assistant", "I will.", RAW)
CALL = FunctionCallItem("c1", "ls", "{}", RAW)
OUTPUT = FunctionOutputItem("c1", "a b", RAW)
ITEMS: tuple[Item, ...] = (SYSTEM, USER, THOUGHT, SAID, CALL, OUTPUT, SAID, USER)


def turn_of(items: tuple[Item, ...], **given: Any) -> Turn:
    return Turn(TenantKey("t"), Evidence(), "m", items, 0.0, **given)


def digests(items: tuple[Item, ...], head: int) -> tuple[ItemDigest | None, ...]:
    return tuple(
        None if isinstance(item, ReasoningItem) else ItemDigest(bytes([index]))
        for index, item in enumerate(items[head:])
    )


def test_items_of_one_turn_share_a_message() -> None:
    turns = cut_turns(ITEMS, {})
    prompt = build_prompt(turn_of(ITEMS, instructions="be"), ITEMS, turns, thinking=True)
    assert [message.role for message in prompt.messages] == [
        "system", "system", "user", "assistant", "tool", "assistant", "user",
    ]  # fmt: skip
    assistant = prompt.messages[3]
    assert (assistant.text, assistant.reasoning) == ("I will.", "hm")
    assert [call.name for call in assistant.tool_calls] == ["ls"]
    assert layout(prompt).head == 2


def test_counts_know_only_whole_messages() -> None:
    counts = message_counts(turn_of(ITEMS, instructions="be"), ITEMS, cut_turns(ITEMS, {}))
    assert counts == (1, 2, 3, 3, 3, 4, 5, 6, 7)


def test_items_without_a_place_make_no_message() -> None:
    items = (USER, OpaqueItem("web_search_call", RAW), USER)
    assert message_counts(turn_of(items), items, cut_turns(items, {})) == (0, 1, 1, 2)


MARK = {"cache_control": {"type": "ephemeral"}}
BREAKPOINT = {"prompt_cache_breakpoint": {"mode": "explicit"}}


def parts(*marks: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "input_text", "text": "x", **mark} for mark in marks]}


@pytest.mark.parametrize(
    ("raw", "borders"),
    [
        (MARK, (2,)),
        (BREAKPOINT, (2,)),
        ({"cache_control": None, "prompt_cache_breakpoint": False}, ()),
        (parts({}), ()),
        (parts(MARK), (2,)),
        (parts({}, BREAKPOINT), (2,)),
        (parts(MARK, {}), (1,)),
        (parts(BREAKPOINT, MARK), (1, 2)),
        ({"content": ["bare", {"type": "input_text", "text": "x"} | MARK]}, (2,)),
        ({"content": "text"} | MARK, (2,)),
    ],
)
def test_a_mark_means_the_last_border_that_is_not_behind_it(
    raw: dict[str, Any], borders: tuple[int, ...]
) -> None:
    items = (SYSTEM, MessageItem("user", "x", raw), USER)
    assert marked_borders(items, (0, 1, 2, 3)) == borders


def test_marks_are_read_from_tool_outputs_and_wait_for_a_whole_assistant_turn() -> None:
    output = FunctionOutputItem("c1", "a b", {"output": [{"type": "input_text"} | MARK]})
    items: tuple[Item, ...] = (USER, MessageItem("assistant", "I will.", parts(MARK)), CALL, output)
    counts = message_counts(turn_of(items), items, cut_turns(items, {}))
    assert marked_borders(items, counts) == (1, 3)
    prompt = build_prompt(turn_of(items), items, cut_turns(items, {}), thinking=True)
    assert layout(prompt, (1, 3)).explicit == (1, 3)


def test_what_a_turn_says_of_reasoning_reaches_the_prompt() -> None:
    for given, expected in (({}, True), ({"preserve_thinking": False}, False)):
        prompt = build_prompt(turn_of(ITEMS, **given), ITEMS, {}, thinking=True)
        assert prompt.preserve_thinking is expected


def test_a_run_of_two_turns_is_cut_where_the_outputs_are_known() -> None:
    items = (USER, SAID, THOUGHT, SAID, CALL)
    names = possible_turns(items, digests(items, 0), 0)
    assert names[AssistantGroup(1, 2)] == (ItemDigest(b"\x01"),)
    assert names[AssistantGroup(2, 5)] == (ItemDigest(b"\x03"), ItemDigest(b"\x04"))
    first, second = ReplayedOutput(None, None), ReplayedOutput("hm", None)
    known = {AssistantGroup(1, 2): first, AssistantGroup(2, 5): second}
    assert list(cut_turns(items, known)) == [AssistantGroup(1, 2), AssistantGroup(2, 5)]


def test_the_longest_known_stretch_wins_and_the_rest_stays_together() -> None:
    items = (SAID, CALL, SAID, SAID)
    known = {
        AssistantGroup(1, 2): ReplayedOutput("short", None),
        AssistantGroup(1, 3): ReplayedOutput("long", None),
    }
    cut = cut_turns(items, known)
    assert [(group.start, group.end) for group in cut] == [(0, 1), (1, 3), (3, 4)]
    assert cut[AssistantGroup(1, 3)] is known[AssistantGroup(1, 3)]
    assert cut[AssistantGroup(0, 1)] is cut[AssistantGroup(3, 4)] is None


def test_the_tail_is_what_stands_behind_the_last_answer_or_the_head() -> None:
    items = (SYSTEM, USER, USER)
    prompt = build_prompt(turn_of(items), items, {}, thinking=True)
    assert layout(prompt).tail == ("user", "user")
    assert layout(build_prompt(turn_of(ITEMS), ITEMS, {}, thinking=True)).tail == ("user",)
