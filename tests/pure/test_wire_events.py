"""What goes out: golden event streams, checked against the official SDK's types, and the order strict clients insist on.

The golden files are written anew by running with NINFER_WRITE_GOLDEN=1; read the difference before keeping it.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from engine.api import Delta, DeltaKind, RequestId, TenantKey
from ninfer_proxy.errors import EngineFault
from ninfer_proxy.events import Broken, Completed, Progressed, TurnEvent, Usage
from ninfer_proxy.http.sse import frame
from ninfer_proxy.http.wire_chat_events import ChatEncoder, completion_object
from ninfer_proxy.http.wire_common import WireDefaults
from ninfer_proxy.http.wire_events import ResponsesEncoder
from ninfer_proxy.http.wire_responses import parse_create
from ninfer_proxy.output import OutputBuilder
from ninfer_proxy.response_object import cache_diagnostics, response_object
from ninfer_proxy.types import ConversationId, Decision, MatchKind, Reason, Turn

GOLDEN = Path(__file__).parent / "golden"
REQUEST = RequestId("r")
DELTAS = (
    Delta(REQUEST, DeltaKind.REASONING, "The user wants "),
    Delta(REQUEST, DeltaKind.REASONING, "a listing."),
    Delta(REQUEST, DeltaKind.TEXT, "\n\nLet me "),
    Delta(REQUEST, DeltaKind.TEXT, "look."),
    Delta(REQUEST, DeltaKind.TOOL_CALL, call=("ls", '{"path": "."}')),
    Delta(REQUEST, DeltaKind.TOOL_CALL, call=("pwd", "{}")),
)
USAGE = Usage(input_tokens=100, cached_tokens=80, output_tokens=20, reasoning_tokens=5)
REQUIRED_KEYS = [
    "id",
    "object",
    "created_at",
    "completed_at",
    "status",
    "incomplete_details",
    "model",
    "previous_response_id",
    "instructions",
    "output",
    "error",
    "tools",
    "tool_choice",
    "truncation",
    "parallel_tool_calls",
    "text",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "top_logprobs",
    "temperature",
    "reasoning",
    "usage",
    "max_output_tokens",
    "max_tool_calls",
    "store",
    "background",
    "service_tier",
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
]


def turn() -> Turn:
    return parse_create(
        {
            "model": "alias",
            "input": "list the files",
            "instructions": "Be brief.",
            "tools": [
                {"type": "function", "name": "ls", "parameters": {"type": "object"}},
                {"type": "function", "function": {"name": "pwd", "description": "where"}},
            ],
            "reasoning": {"effort": "high", "summary": "auto"},
            "metadata": {"k": "v"},
            "prompt_cache_key": "s:0",
        },
        headers={},
        tenant=TenantKey("t"),
        now=1000.0,
        defaults=WireDefaults("demo"),
    )


def decision(reason: Reason) -> Decision:
    return Decision(
        reason,
        "",
        0,
        ConversationId("c"),
        MatchKind.CONTINUES,
        (),
        prompt_tokens=100,
        reused_tokens=80,
        source_tier=None,
        source_kind=None,
    )


def played(deltas: Sequence[Delta], status: str = "completed") -> list[TurnEvent]:
    numbers = iter(range(100))
    builder = OutputBuilder(lambda prefix: f"{prefix}_{next(numbers)}")
    events: list[TurnEvent] = [Progressed(50, 100)]
    events += [event for delta in deltas for event in builder.add(delta)]
    events += builder.finish(cut=status != "completed")
    reason = "max_output_tokens" if status == "incomplete" else None
    body = response_object(
        turn(),
        response_id="resp_1",
        created_at=1000,
        status=status,
        output=builder.output,
        usage=USAGE,
        completed_at=1002,
        incomplete_reason=reason,
        decision=decision(Reason.INPUT_CHANGED),
    )
    end = Completed(status, reason, builder.output, USAGE, decision(Reason.INPUT_CHANGED), body)
    return [*events, end]


def opening() -> dict[str, Any]:
    return response_object(turn(), response_id="resp_1", created_at=1000, status="in_progress")


def responses_stream(events: Sequence[TurnEvent]) -> list[dict[str, Any]]:
    encoder = ResponsesEncoder(opening())
    payloads = encoder.start() + [p for event in events for p in encoder.encode(event)]
    return [json.loads(frame(payload).split(b"data: ", 1)[1]) for payload in payloads]


def chat_stream(events: Sequence[TurnEvent], *, include_usage: bool) -> list[dict[str, Any]]:
    encoder = ChatEncoder(
        response_id="resp_1", created_at=1000, model="alias", include_usage=include_usage
    )
    return encoder.start() + [p for event in events for p in encoder.encode(event)]


def check_golden(name: str, value: Any) -> None:
    path = GOLDEN / name
    text = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
    if os.environ.get("NINFER_WRITE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_responses_stream() -> None:
    check_golden("responses_stream.json", responses_stream(played(DELTAS)))


def test_chat_stream() -> None:
    check_golden("chat_stream.json", chat_stream(played(DELTAS), include_usage=True))


def test_chat_completion() -> None:
    end = played(DELTAS)[-1]
    assert isinstance(end, Completed)
    body = completion_object(end, response_id="resp_1", created_at=1000, model="alias")
    ChatCompletion.model_validate(body)
    check_golden("chat_completion.json", body)


def test_every_event_fits_the_official_types() -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    for status in ("completed", "incomplete", "cancelled"):
        for payload in responses_stream(played(DELTAS, status)):
            adapter.validate_python(payload)
    for payload in chat_stream(played(DELTAS), include_usage=True):
        ChatCompletionChunk.model_validate(payload)


def test_sequence_numbers_are_unbroken_also_on_error() -> None:
    broken = Broken(EngineFault("It broke."), {**opening(), "status": "failed"})
    for events in (played(DELTAS), [*played(DELTAS)[:4], broken]):
        payloads = responses_stream(events)
        assert [p["sequence_number"] for p in payloads] == list(range(len(payloads)))


def test_an_error_is_told_flat_and_nested_and_then_the_response_failed() -> None:
    payloads = responses_stream(
        [Broken(EngineFault("It broke."), {**opening(), "status": "failed"})]
    )
    error, failed = payloads[-2:]
    assert (error["type"], error["code"], error["message"], error["param"]) == (
        "error",
        "engine_fault",
        "It broke.",
        None,
    )
    assert error["error"] == {
        "type": "server_error",
        "code": "engine_fault",
        "message": "It broke.",
        "param": None,
    }
    assert (failed["type"], failed["response"]["status"]) == ("response.failed", "failed")


def test_a_turn_that_says_nothing_still_has_a_whole_message() -> None:
    kinds = [payload["type"] for payload in responses_stream(played(()))]
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]


@pytest.mark.parametrize(
    ("status", "kind", "finish"),
    [("completed", "completed", "tool_calls"), ("incomplete", "incomplete", "length")],
)
def test_the_last_event_tells_how_it_ended(status: str, kind: str, finish: str) -> None:
    events = played(DELTAS, status)
    assert responses_stream(events)[-1]["type"] == f"response.{kind}"
    (choice,) = chat_stream(events, include_usage=False)[-1]["choices"]
    assert choice["finish_reason"] == finish


def test_chat_usage_comes_only_when_asked_for() -> None:
    without = chat_stream(played(DELTAS), include_usage=False)
    assert all("usage" not in chunk for chunk in without)
    with_usage = chat_stream(played(DELTAS), include_usage=True)
    assert [chunk["usage"] for chunk in with_usage[:-1]] == [None] * (len(with_usage) - 1)
    assert with_usage[-1]["choices"] == []
    assert with_usage[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 80}


def test_the_response_object_has_every_key_in_every_state() -> None:
    end = played(DELTAS)[-1]
    assert isinstance(end, Completed)
    for body in (opening(), end.body):
        assert set(REQUIRED_KEYS) <= body.keys()
        Response.model_validate(body)
    assert opening()["output"] == []
    assert end.body["tools"][1] == {
        "type": "function",
        "name": "pwd",
        "description": "where",
        "parameters": None,
        "strict": None,
    }
    assert end.body["reasoning"] == {"effort": "high", "summary": "auto"}


@pytest.mark.parametrize("reason", Reason)
def test_cache_diagnostics_fit_the_official_types_and_keep_our_reason(reason: Reason) -> None:
    body = {**opening(), "prompt_cache_diagnostics": cache_diagnostics(decision(reason))}
    shown = Response.model_validate(body).model_dump()["prompt_cache_diagnostics"]
    assert shown["ninfer_reason"] == reason
    assert (shown["cache_missed_tokens"], shown["comparison_reusable_tokens"]) == (20, 80)
    assert (shown["type"] == "cache_hit") == (reason is Reason.CACHE_HIT)


def test_frames() -> None:
    assert frame({"type": "a.b", "x": "\n"}) == b'event: a.b\ndata: {"type":"a.b","x":"\\n"}\n\n'
    assert frame({"x": 1}) == b'data: {"x":1}\n\n'
