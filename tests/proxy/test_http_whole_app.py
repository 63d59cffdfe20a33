"""The app as it is composed, over the scripted backend: what the HTTP side promises holds with real turns and a real store."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from live_server import serving

from engine.api import Generate, RejectCode
from ninfer_proxy.app import build_app
from ninfer_proxy.backends.scripted import Performance, ScriptedBackend, call, reasoning, text
from ninfer_proxy.config import load
from ninfer_proxy.store.store import Store

SOON_S = 20.0


def clerk(request: Generate) -> Performance:
    """Calls when asked to run something, reports what a tool said, otherwise repeats."""
    last = request.prompt.messages[-1]
    if last.role == "tool":
        return Performance((text(f"It says: {last.text}"),))
    if last.text.startswith("run ") and request.prompt.tools:
        arguments = json.dumps({"command": last.text[4:]})
        return Performance((reasoning("A command."), call("exec", arguments)))
    if last.text == "hang":
        return Performance((text("one"), text("two")), hang_after=1)
    if last.text == "break":
        return Performance((text("one"), text("two")), fail_after=1)
    if last.text == "busy":
        return Performance(reject=RejectCode.QUEUE_FULL)
    return Performance((text(f"You said: {last.text}"),))


class Whole:
    """The app, its backend, and a client of each kind."""

    def __init__(self, port: int, backend: ScriptedBackend) -> None:
        self.port = port
        self.backend = backend
        # Reading the certificates of the world would take longer than the test.
        self.http = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60, verify=False)
        self.sdk = openai.AsyncOpenAI(
            base_url=f"http://127.0.0.1:{port}/v1",
            api_key="k",
            max_retries=0,
            http_client=openai.DefaultAsyncHttpxClient(verify=False),
        )

    async def say(self, **body: Any) -> httpx.Response:
        return await self.http.post("/v1/responses", json=body)


@asynccontextmanager
async def whole(data_dir: Path) -> AsyncIterator[Whole]:
    config = load(None, {}, {"server.data_dir": str(data_dir)})
    store = await Store.open(data_dir, clock=lambda: 1000.0)
    backend = ScriptedBackend(clerk, context_tokens=2000)
    try:
        async with serving(build_app(config, store, backend)) as port:
            running = Whole(port, backend)
            async with running.http, running.sdk:
                yield running
    finally:
        await store.close()


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Whole]:
    async with whole(tmp_path / "data") as running:
        yield running


async def soon(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON_S):
        while not condition():
            await asyncio.sleep(0.005)


TOOLS: list[Any] = [{"type": "function", "name": "exec", "parameters": {"type": "object"}}]


async def test_a_conversation_by_previous_response_id(app: Whole) -> None:
    first = await app.sdk.responses.create(model="m", input="hello")
    second = await app.sdk.responses.create(model="m", input="again", previous_response_id=first.id)
    assert second.output_text == "You said: again"
    assert second.previous_response_id == first.id
    assert second.usage
    assert 0 < second.usage.input_tokens_details.cached_tokens < second.usage.input_tokens
    assert await app.sdk.responses.retrieve(second.id) == second
    items = [item async for item in app.sdk.responses.input_items.list(second.id, order="asc")]
    assert [item.type for item in items] == ["message", "message", "message"]
    await app.sdk.responses.delete(first.id)
    with pytest.raises(openai.BadRequestError) as gone:
        await app.sdk.responses.create(model="m", input="x", previous_response_id=first.id)
    assert gone.value.code == "previous_response_not_found"


async def test_a_tool_round_trip_streamed(app: Whole) -> None:
    history: list[Any] = [{"role": "user", "content": "run ls"}]
    async with app.sdk.responses.stream(model="m", input=history, tools=TOOLS) as stream:
        kinds = [event.type async for event in stream]
        asked = await stream.get_final_response()
    assert "response.reasoning_summary_text.delta" in kinds
    made = asked.output[1]
    assert made.type == "function_call"
    output = {"type": "function_call_output", "call_id": made.call_id, "output": "a.txt"}
    replay = [item.model_dump() for item in asked.output]
    answer = await app.sdk.responses.create(
        model="m", input=[*history, *replay, output], tools=TOOLS
    )
    assert answer.output_text == "It says: a.txt"
    assert answer.usage
    fresh = answer.usage.input_tokens - answer.usage.input_tokens_details.cached_tokens
    assert fresh < 10


async def test_chat_and_responses_share_a_conversation(app: Whole) -> None:
    messages: list[Any] = [{"role": "user", "content": "hello over chat"}]
    first = await app.sdk.chat.completions.create(model="m", messages=messages)
    messages.append({"role": "assistant", "content": first.choices[0].message.content})
    messages.append({"role": "user", "content": "more"})
    raw = await app.sdk.chat.completions.with_raw_response.create(model="m", messages=messages)
    assert "match=continues" in raw.headers["x-ninfer-decision"]
    usage = (raw.parse()).usage
    assert usage
    assert usage.prompt_tokens_details
    assert usage.prompt_tokens_details.cached_tokens


REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({"input": "busy"}, 429, "queue_full"),
    ({"input": "w " * 3000}, 400, "context_length_exceeded"),
    ({"input": "x", "previous_response_id": "resp_no"}, 400, "previous_response_not_found"),
    (
        {"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]},
        400,
        "no_matching_call",
    ),
    ({"input": [{"type": "item_reference", "id": "msg_no"}]}, 400, "invalid_request"),
]


async def test_refusals_come_as_a_status_before_any_stream(app: Whole) -> None:
    for body, status, code in REFUSED:
        for stream in (True, False):
            answer = await app.say(**body, stream=stream)
            assert answer.status_code == status
            assert answer.json()["error"]["code"] == code
            assert ("retry-after" in answer.headers) == (status == 429)
    assert (await app.say(input="still there?")).status_code == 200
    page = (await app.http.get("/metrics")).text
    assert 'ninfer_errors_total{code="queue_full"} 2.0' in page
    assert 'status="failed"' not in page


async def test_a_failing_engine(app: Whole) -> None:
    whole_answer = await app.say(input="break")
    assert whole_answer.json()["error"]["code"] == "engine_fault"
    streamed = (await app.say(input="break", stream=True)).text
    assert "event: response.failed" in streamed
    assert streamed.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("stream", [True, False])
async def test_leaving_cancels_and_frees_the_conversation(app: Whole, stream: bool) -> None:
    task = asyncio.create_task(app.say(input="hang", stream=stream))
    await soon(lambda: len(app.backend.requests) == 1)
    task.cancel()
    await soon(lambda: bool(app.backend.cancelled))
    answer = await app.say(input=[{"role": "user", "content": "hang on"}])
    assert answer.status_code == 200
    page = (await app.http.get("/metrics")).text
    assert "ninfer_turns_in_flight 0.0" in page


async def test_counting_tokens_leaves_no_trace(app: Whole) -> None:
    counted = await app.sdk.responses.input_tokens.count(model="m", input="one two three")
    assert counted.input_tokens == 6
    assert app.backend.requests == []


async def test_nothing_that_clients_send_breaks_it(app: Whole) -> None:
    odd: list[Any] = [
        {"type": "message", "role": "user", "content": []},
        {"type": "message", "role": "assistant", "content": None},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{not json"},
        {"type": "function_call_output", "call_id": "c", "output": []},
        {"type": "function_call", "call_id": "d", "name": "f", "arguments": "[" * 5000},
        {"type": "custom_tool_call", "call_id": "e", "name": "f", "input": "x"},
        {"type": "compaction", "encrypted_content": "x"},
        {"role": "user", "content": "\0 \x1b[31m"},
    ]
    for count in range(1, len(odd) + 1):
        answer = await app.say(input=odd[:count])
        assert answer.status_code in (200, 400), answer.text
    for fields in (
        {"metadata": {"a": {"b": [1]}}, "user": "u\0"},
        {"tools": [{"type": "function", "name": "n" * 5000}]},
        {"text": {"format": {"type": "json_schema", "schema": {}}}},
        {"prompt_cache_key": "k" * 5000},
    ):
        answer = await app.say(input="x", **fields)
        assert answer.status_code == 200, answer.text
