"""Responses requests become turns: every form clients use, and a named error for what can't be meant."""

from typing import Any

import pytest

from ninfer_proxy.errors import InvalidRequest, ModelNotFound, NotFound
from ninfer_proxy.http.wire_common import MAX_WARNINGS, WireDefaults
from ninfer_proxy.http.wire_responses import parse_create
from ninfer_proxy.types import (
    FunctionCallItem,
    FunctionOutputItem,
    ItemReference,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    Sampling,
    TenantKey,
    ToolSpec,
    Turn,
)

DEFAULTS = WireDefaults("demo", sampling=Sampling(temperature=0.5, top_k=20))


def parse(
    body: Any, *, defaults: WireDefaults = DEFAULTS, headers: dict[str, str] | None = None
) -> Turn:
    return parse_create(
        body, headers=headers or {}, tenant=TenantKey("t"), now=10.0, defaults=defaults
    )


def with_input(*items: Any, **fields: Any) -> Turn:
    return parse({"input": list(items), **fields})


def test_a_string_is_one_user_message() -> None:
    turn = parse({"model": "alias", "input": "hi", "instructions": "Be brief."})
    assert [(item.role, item.text) for item in turn.items if isinstance(item, MessageItem)] == [
        ("user", "hi")
    ]
    assert turn.items[0].raw["content"] == [{"type": "input_text", "text": "hi"}]
    assert (turn.model, turn.instructions) == ("alias", "Be brief.")
    assert turn.store
    assert not turn.stream
    assert turn.warnings == ()


def test_every_kind_of_item() -> None:
    turn = with_input(
        {"role": "developer", "content": "rules"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "rs_1"},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "m"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"x": 1}'},
        {"type": "function_call_output", "call_id": "c1", "output": "done"},
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": [{"type": "input_text", "text": "in parts"}],
        },
        {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "free text"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "ok"},
        {"id": "msg_9"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    )
    kinds = [type(item) for item in turn.items]
    assert kinds == [
        MessageItem,
        MessageItem,
        ReasoningItem,
        ReasoningItem,
        MessageItem,
        FunctionCallItem,
        FunctionOutputItem,
        FunctionOutputItem,
        FunctionCallItem,
        FunctionOutputItem,
        ItemReference,
        OpaqueItem,
    ]
    texts = [getattr(item, "text", None) for item in turn.items]
    assert texts[:8] == ["rules", "a", "", "m", "no", None, "done", "in parts"]
    custom = turn.items[8]
    assert isinstance(custom, FunctionCallItem)
    assert custom.arguments == '{"input": "free text"}'
    assert turn.warnings == ("input[11]: type 'web_search_call' is not supported, ignored",)


def test_images_and_files_are_kept_but_not_read() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
    content = [{"type": "input_text", "text": "see"}, image, {"type": "input_file", "file_id": "f"}]
    turn = with_input({"role": "user", "content": content})
    (item,) = turn.items
    assert isinstance(item, MessageItem)
    assert item.text == "see"
    assert item.raw["content"][1] == image
    assert turn.warnings == (
        "input[0]: 'input_image' is not read",
        "input[0]: 'input_file' is not read",
    )


def test_tools_flat_nested_and_foreign() -> None:
    schema = {"type": "object", "properties": {"z": {}, "a": {}}}
    tools = [
        {"type": "function", "name": "flat", "description": "d", "parameters": schema},
        {"type": "function", "function": {"name": "nested"}},
        {"type": "web_search"},
        {"type": "namespace", "name": "n", "tools": []},
    ]
    turn = parse({"input": "x", "tools": tools, "tool_choice": "none"})
    assert turn.tools == (
        ToolSpec("flat", "d", schema),
        ToolSpec("nested", None, {"type": "object", "properties": {}}),
    )
    assert list(turn.tools[0].parameters["properties"]) == ["z", "a"]
    assert turn.tools_raw == tuple(tools)
    assert turn.tool_choice == "none"
    assert [warning[:8] for warning in turn.warnings] == ["tools[2]", "tools[3]"]


@pytest.mark.parametrize(
    ("choice", "expected", "warned"),
    [
        (None, "auto", False),
        ("auto", "auto", False),
        ("required", "required", True),
        ({"type": "function", "name": "f"}, "function:f", True),
        ({"type": "function", "function": {"name": "f"}}, "function:f", True),
        ({"type": "allowed_tools", "mode": "none", "tools": []}, "none", False),
        ({"type": "allowed_tools", "mode": "auto", "tools": []}, "auto", True),
        ({"type": "mcp", "server_label": "s"}, "auto", True),
    ],
)
def test_tool_choice(choice: Any, expected: str, warned: bool) -> None:
    turn = parse({"input": "x", "tool_choice": choice})
    assert turn.tool_choice == expected
    assert bool(turn.warnings) is warned


@pytest.mark.parametrize(
    ("fields", "thinking", "effort"),
    [
        ({}, None, None),
        ({"reasoning": None}, None, None),
        ({"reasoning": {"summary": "auto"}}, None, None),
        ({"reasoning": {"effort": "none"}}, False, None),
        ({"reasoning": {"effort": "minimal"}}, True, "low"),
        ({"reasoning": {"effort": "low"}}, True, "low"),
        ({"reasoning": {"effort": "medium"}}, True, "medium"),
        ({"reasoning": {"effort": "high"}}, True, "xhigh"),
        ({"reasoning": {"effort": "max"}}, True, "xhigh"),
        ({"reasoning": {"effort": "xhigh"}}, True, "xhigh"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, False, None),
    ],
)
def test_reasoning_effort(fields: Any, thinking: bool | None, effort: str | None) -> None:
    turn = parse({"input": "x", **fields})
    assert (turn.thinking, turn.effort, turn.preserve_thinking) == (thinking, effort, True)


def test_sampling_falls_back_field_by_field() -> None:
    turn = parse({"input": "x", "temperature": 0, "top_p": 0.9, "seed": 7, "top_k": None})
    assert turn.sampling == Sampling(temperature=0, top_p=0.9, top_k=20, seed=7)
    assert parse({"input": "x", "top_k": -1}).sampling.top_k == 0


def test_client_evidence() -> None:
    turn = parse(
        {
            "input": "x",
            "user": "u",
            "prompt_cache_key": "s:0",
            "metadata": {"session_id": "s", "n": 1},
            "client_metadata": {"session_id": "other", "thread": "th"},
        },
        headers={
            "session_id": "s",
            "authorization": "Bearer secret",
            "cookie": "c",
            "user-agent": "UA",
        },
    )
    assert turn.client.headers == {"session_id": "s"}
    assert (turn.client.user_agent, turn.client.prompt_cache_key, turn.client.user) == (
        "UA",
        "s:0",
        "u",
    )
    assert turn.client.metadata == {"session_id": "s", "n": 1, "thread": "th"}
    assert turn.metadata == {"session_id": "s"}
    assert turn.warnings == ("metadata.n: not a string, not stored",)


def test_continuations_need_no_input() -> None:
    turn = parse({"previous_response_id": "resp_1"})
    assert (turn.previous_response_id, turn.items) == ("resp_1", ())
    assert parse({"input": "x", "previous_response_id": ""}).previous_response_id is None


def test_unknown_fields_are_ignored_with_a_warning() -> None:
    turn = parse({"input": "x", "frobnicate": 1, "background": True, "truncation": "auto"})
    assert turn.warnings == (
        "frobnicate: unknown field, ignored",
        "background: not supported, ignored",
        "truncation: not supported, ignored",
    )


def test_warnings_are_bounded() -> None:
    turn = parse({"input": "x", **{f"field{n}" * 100: n for n in range(1000)}})
    assert len(turn.warnings) == MAX_WARNINGS + 1
    assert sum(map(len, turn.warnings)) < 4000


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"min_p": -1}, "min_p"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"seed": 1e30}, "seed"),
        ({"max_output_tokens": -1}, "max_output_tokens"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": 1.5}, "max_output_tokens"),
        ({"stop": [1]}, "stop"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"instructions": ["x"]}, "instructions"),
        ({"previous_response_id": 5}, "previous_response_id"),
        ({"metadata": []}, "metadata"),
        ({"tools": {}}, "tools"),
        ({"tools": [1]}, "tools[0]"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"type": "function", "name": "f", "parameters": "x"}]}, "tools[0].parameters"),
        ({"tools": [{"type": "function", "name": "f"}] * 1025}, "tools"),
        ({"tool_choice": "maybe"}, "tool_choice"),
        ({"tool_choice": 5}, "tool_choice"),
        ({"reasoning": {"effort": 3}}, "reasoning.effort"),
        ({"include": [1]}, "include[0]"),
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": [5]}, "input[0]"),
        ({"input": [{}]}, "input[0].type"),
        ({"input": [{"role": "judge", "content": "x"}]}, "input[0].role"),
        ({"input": [{"type": "message", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": 5}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": [{"text": 5}]}]}, "input[0].content"),
        ({"input": [{"type": "function_call", "name": "f"}]}, "input[0].call_id"),
        ({"input": [{"role": "user", "content": "x"}, {"type": "item_reference"}]}, "input[1].id"),
        ({"input": [{"role": "user", "content": "x"}] * 8193}, "input"),
    ],
)
def test_what_cannot_be_meant_is_named(fields: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse({"input": "x", **fields})
    assert caught.value.param == param
    assert len(caught.value.message) < 200


@pytest.mark.parametrize("field", ["conversation", "prompt"])
def test_state_that_cannot_exist_here_is_not_found(field: str) -> None:
    with pytest.raises(NotFound) as caught:
        parse({"input": "x", field: {"id": "x"}})
    assert caught.value.param == field


def test_other_model_names_are_accepted_unless_strict() -> None:
    assert parse({"input": "x"}).model == "demo"
    strict = WireDefaults("demo", strict_model=True)
    assert parse({"input": "x", "model": "demo"}, defaults=strict).model == "demo"
    with pytest.raises(ModelNotFound):
        parse({"input": "x", "model": "gpt-5"}, defaults=strict)


@pytest.mark.parametrize("body", [None, [], "x", 5, True])
def test_a_body_must_be_an_object(body: Any) -> None:
    with pytest.raises(InvalidRequest):
        parse(body)
