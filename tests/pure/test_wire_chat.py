"""Chat requests become the same items that the Responses API would carry."""

from typing import Any

import pytest

from ninfer_proxy.errors import InvalidRequest
from ninfer_proxy.http.wire_chat import ChatTurn, parse_chat
from ninfer_proxy.http.wire_common import WireDefaults
from ninfer_proxy.types import (
    FunctionCallItem,
    FunctionOutputItem,
    MessageItem,
    ReasoningItem,
    TenantKey,
)


def parse(*messages: Any, **fields: Any) -> ChatTurn:
    return parse_chat(
        {"messages": list(messages), **fields},
        headers={},
        tenant=TenantKey("t"),
        now=1.0,
        defaults=WireDefaults("demo"),
    )


def call(call_id: str = "c1", arguments: Any = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": arguments}}


def test_messages_become_items_in_order() -> None:
    turn = parse(
        {"role": "system", "content": "rules"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {
            "role": "assistant",
            "reasoning_content": "hm",
            "content": "I look.",
            "tool_calls": [call()],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "result"},
        {"role": "assistant", "content": None, "tool_calls": [call("c2"), call("c3")]},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "r2"}]},
        {"role": "assistant", "content": ""},
        {"role": "developer", "content": "more rules"},
    ).turn
    shapes = [(type(item), getattr(item, "text", None)) for item in turn.items]
    assert shapes == [
        (MessageItem, "rules"),
        (MessageItem, "ab"),
        (ReasoningItem, "hm"),
        (MessageItem, "I look."),
        (FunctionCallItem, None),
        (FunctionOutputItem, "result"),
        (FunctionCallItem, None),
        (FunctionCallItem, None),
        (FunctionOutputItem, "r2"),
        (MessageItem, ""),
        (MessageItem, "more rules"),
    ]
    assert [part["type"] for part in turn.items[1].raw["content"]] == ["input_text"] * 2
    assert turn.items[3].raw["content"][0]["type"] == "output_text"
    assert turn.warnings == ()


def test_marks_of_a_message_stand_for_its_end() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    turn = parse(
        {"role": "system", "content": [{"type": "text", "text": "rules", **mark}]},
        {"role": "user", "content": "look", **mark},
        {"role": "assistant", "content": "I look.", "tool_calls": [call()], **mark},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "r", **mark}]},
    ).turn
    system, user, said, called, output = (item.raw for item in turn.items)
    assert system["content"][0]["cache_control"] == mark["cache_control"]
    assert user["cache_control"] == called["cache_control"] == mark["cache_control"]
    assert output["output"][0]["cache_control"] == mark["cache_control"]
    assert "cache_control" not in said
    assert turn.warnings == ()


def test_fields() -> None:
    chat = parse(
        {"role": "user", "content": "x"},
        model="m",
        max_tokens=5,
        stop="END",
        stream=True,
        stream_options={"include_usage": True},
        reasoning_effort="none",
        tools=[{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        tool_choice="none",
    )
    turn = chat.turn
    assert chat.include_usage
    assert turn.stream
    assert not turn.store
    assert (turn.model, turn.max_output_tokens, turn.stop) == ("m", 5, ("END",))
    assert (turn.thinking, turn.tools[0].name, turn.tool_choice) == (False, "f", "none")
    both = parse({"role": "user", "content": "x"}, max_tokens=5, max_completion_tokens=9)
    assert both.turn.max_output_tokens == 9


def test_what_is_not_read_is_warned_about() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    turn = parse(
        {"role": "user", "content": [image]},
        response_format={"type": "json_object"},
        logit_bias={},
    ).turn
    assert turn.warnings == (
        "logit_bias: unknown field, ignored",
        "response_format: not supported, ignored",
        "messages[0]: 'input_image' is not read",
    )


@pytest.mark.parametrize(
    ("messages", "fields", "param"),
    [
        ([], {}, "messages"),
        ([5], {}, "messages[0]"),
        ([{}], {}, "messages[0].role"),
        ([{"role": "judge", "content": "x"}], {}, "messages[0].role"),
        ([{"role": "user", "content": 5}], {}, "messages[0].content"),
        ([{"role": "user", "content": [5]}], {}, "messages[0].content"),
        ([{"role": "tool", "content": "x"}], {}, "messages[0].tool_call_id"),
        ([{"role": "assistant", "tool_calls": 5}], {}, "messages[0].tool_calls"),
        ([{"role": "assistant", "tool_calls": [5]}], {}, "messages[0].tool_calls[0]"),
        (
            [{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}],
            {},
            "messages[0].tool_calls[0].id",
        ),
        (
            [{"role": "assistant", "tool_calls": [{"id": "c", "function": {}}]}],
            {},
            "messages[0].name",
        ),
        (
            [{"role": "assistant", "tool_calls": [call(arguments=[])]}],
            {},
            "messages[0].arguments",
        ),
        ([{"role": "user", "content": "x"}], {"n": 2}, "n"),
        ([{"role": "user", "content": "x"}], {"max_tokens": -1}, "max_tokens"),
        ([{"role": "user", "content": "x"}] * 8193, {}, "messages"),
    ],
)
def test_what_cannot_be_meant_is_named(
    messages: list[Any], fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(*messages, **fields)
    assert caught.value.param == param
