"""Wire items → Item: short forms are understood, guesses are refused."""

import pytest

from ninfer_proxy.errors import InvalidRequest
from ninfer_proxy.items import item_from_raw
from ninfer_proxy.types import (
    FunctionCallItem,
    FunctionOutputItem,
    ItemReference,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
)


def message(content):
    return {"role": "user", "content": content}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        (None, ""),
        ([], ""),
        (
            [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}],
            "ab",
        ),
        ([{"type": "refusal", "refusal": "no"}], "no"),
        ([{"type": "input_image", "image_url": "data:,x"}, {"text": "seen"}], "seen"),
        (["loose"], "loose"),
    ],
)
def test_message_text(content, text):
    raw = message(content)
    assert item_from_raw(raw) == MessageItem("user", text, raw)


def test_calls_and_outputs():
    call = {
        "type": "function_call",
        "call_id": "c1",
        "name": "run",
        "arguments": '{ "a":1 }',
    }
    assert item_from_raw(call) == FunctionCallItem("c1", "run", '{ "a":1 }', call)
    parsed = {
        "type": "function_call",
        "call_id": "c1",
        "name": "run",
        "arguments": {"a": 1},
    }
    assert item_from_raw(parsed) == FunctionCallItem("c1", "run", '{"a": 1}', parsed)
    listed = {
        "type": "function_call_output",
        "call_id": "c1",
        "output": [{"text": "x"}],
    }
    assert item_from_raw(listed) == FunctionOutputItem("c1", "x", listed)
    custom = {
        "type": "custom_tool_call",
        "call_id": "c2",
        "name": "sh",
        "input": "ls ä",
    }
    assert item_from_raw(custom) == FunctionCallItem("c2", "sh", '{"input": "ls ä"}', custom)
    answer = {"type": "custom_tool_call_output", "call_id": "c2", "output": "y"}
    assert item_from_raw(answer) == FunctionOutputItem("c2", "y", answer)


@pytest.mark.parametrize(
    ("fields", "text", "encrypted"),
    [
        ({"summary": []}, "", None),
        ({"summary": None}, "", None),
        ({"summary": [], "encrypted_content": "b3"}, "", "b3"),
        (
            {"summary": [{"type": "summary_text", "text": "short"}], "content": []},
            "short",
            None,
        ),
        (
            {"content": [{"type": "reasoning_text", "text": "long"}], "summary": []},
            "long",
            None,
        ),
    ],
)
def test_reasoning(fields, text, encrypted):
    raw = {"type": "reasoning", "id": "rs", **fields}
    assert item_from_raw(raw) == ReasoningItem(text, encrypted, raw)


def test_references_and_unknown_types():
    assert item_from_raw({"id": "msg_1"}) == ItemReference("msg_1", {"id": "msg_1"})
    raw = {"type": "web_search_call", "id": "ws_1"}
    assert item_from_raw(raw) == OpaqueItem("web_search_call", raw)


@pytest.mark.parametrize(
    ("raw", "param"),
    [
        ({}, "type"),
        ({"type": 3}, "type"),
        ({"type": "message", "content": "x"}, "role"),
        ({"role": "user", "content": 3}, "content"),
        ({"role": "user", "content": [3]}, "content"),
        ({"role": "user", "content": [{"type": "text", "text": 3}]}, "content"),
        ({"type": "function_call", "call_id": "c", "arguments": "{}"}, "name"),
        (
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": 1},
            "arguments",
        ),
        ({"type": "function_call_output", "output": "x"}, "call_id"),
        ({"type": "reasoning", "summary": 7}, "summary"),
    ],
)
def test_refused(raw, param):
    with pytest.raises(InvalidRequest) as caught:
        item_from_raw(raw)
    assert caught.value.param == param
