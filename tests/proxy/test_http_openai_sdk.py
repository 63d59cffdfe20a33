"""The official SDK against a live server, sync and async, with and without its stream helpers: nothing of it may stumble."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import openai
import pytest
from fake_turns import FakeTurns, build, overloaded
from live_server import serving

from engine.api import Generate
from ninfer_proxy.backends.scripted import Performance, call, reasoning, text
from ninfer_proxy.errors import PreviousResponseNotFound

TOOLS: list[Any] = [
    {
        "type": "function",
        "name": "ls",
        "description": "list",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
        "strict": False,
    }
]
CHAT_TOOLS: list[Any] = [{"type": "function", "function": {"name": "ls", "parameters": {}}}]
USER: list[Any] = [{"role": "user", "content": "look"}]


def agent(request: Generate) -> Performance:
    """Thinks, then calls where it may and talks where it may not."""
    if request.prompt.tools:
        return Performance((reasoning("I see."), text("Wait. "), call("ls", '{"path": "."}')))
    return Performance((reasoning("I "), reasoning("see."), text("You "), text("said it.")))


@pytest.fixture
async def service() -> FakeTurns:
    return FakeTurns(agent)


@pytest.fixture
async def url(service: FakeTurns) -> AsyncIterator[str]:
    async with serving(build(service)) as port:
        yield f"http://127.0.0.1:{port}/v1"


@pytest.fixture
async def client(url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    # Reading the certificates of the world would take longer than the test.
    http = openai.DefaultAsyncHttpxClient(verify=False)
    async with openai.AsyncOpenAI(
        base_url=url, api_key="k", max_retries=0, http_client=http
    ) as client:
        yield client


async def in_thread(url: str, work: Callable[[openai.OpenAI], Any]) -> Any:
    def run() -> Any:
        http = openai.DefaultHttpxClient(verify=False)
        with openai.OpenAI(base_url=url, api_key="k", max_retries=0, http_client=http) as client:
            return work(client)

    return await asyncio.to_thread(run)


def kinds(events: Iterator[Any]) -> list[str]:
    return [event.type for event in events]


async def test_responses_sync(url: str) -> None:
    response = await in_thread(url, lambda c: c.responses.create(model="m", input="hi"))
    assert response.output_text == "You said it."
    assert response.usage.output_tokens_details.reasoning_tokens == 2
    assert [item.type for item in response.output] == ["reasoning", "message"]
    events = await in_thread(
        url, lambda c: kinds(c.responses.create(model="m", input="hi", stream=True))
    )
    assert events[-1] == "response.completed"

    def helper(client: openai.OpenAI) -> Any:
        with client.responses.stream(model="m", input="hi", tools=TOOLS) as stream:
            return kinds(stream), stream.get_final_response()

    events, final = await in_thread(url, helper)
    assert "response.function_call_arguments.done" in events
    assert final.output[2].arguments == '{"path": "."}'


async def test_responses_async(client: openai.AsyncOpenAI) -> None:
    response = await client.responses.create(model="m", input="hi", tools=TOOLS)
    calls = [item for item in response.output if item.type == "function_call"]
    assert (calls[0].name, calls[0].arguments) == ("ls", '{"path": "."}')
    async with client.responses.stream(model="m", input="hi") as stream:
        deltas = [e.delta async for e in stream if e.type == "response.output_text.delta"]
        final = await stream.get_final_response()
    assert "".join(deltas) == final.output_text == "You said it."
    assert final.model_dump()["output"][0]["summary"][0]["text"] == "I see."


async def test_a_tool_round_trip_with_replayed_items(client: openai.AsyncOpenAI) -> None:
    first = await client.responses.create(model="m", input=USER, tools=TOOLS)
    replay = [item.model_dump() for item in first.output]
    outputs = [
        {"type": "function_call_output", "call_id": item.call_id, "output": "a b"}
        for item in first.output
        if item.type == "function_call"
    ]
    second = await client.responses.create(model="m", input=[*USER, *replay, *outputs])  # type: ignore[list-item]
    assert second.output_text == "You said it."


async def test_stored_responses(client: openai.AsyncOpenAI) -> None:
    created = await client.responses.create(model="m", input="hi", metadata={"k": "v"})
    fetched = await client.responses.retrieve(created.id)
    assert fetched == created
    page = await client.responses.input_items.list(created.id, limit=2)
    assert [item.id for item in page.data] == ["desc_0", "desc_1"]
    await client.responses.delete(created.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(created.id)


async def test_counting_and_models(client: openai.AsyncOpenAI) -> None:
    counted = await client.responses.input_tokens.count(model="m", input="one two")
    assert counted.input_tokens == 5
    assert [model.id async for model in client.models.list()] == ["demo"]
    assert (await client.models.retrieve("demo")).id == "demo"


async def test_chat_sync(url: str) -> None:
    whole = await in_thread(url, lambda c: c.chat.completions.create(model="m", messages=USER))
    message = whole.choices[0].message
    assert (message.content, message.reasoning_content) == ("You said it.", "I see.")

    def helper(client: openai.OpenAI) -> Any:
        with client.chat.completions.stream(model="m", messages=USER) as stream:
            for _ in stream:
                pass
            return stream.get_final_completion()

    final = await in_thread(url, helper)
    assert final.choices[0].message.content == "You said it."


async def test_chat_async_with_tools_and_usage(client: openai.AsyncOpenAI) -> None:
    async with client.chat.completions.stream(
        model="m", messages=USER, tools=CHAT_TOOLS, stream_options={"include_usage": True}
    ) as stream:
        events = [event.type async for event in stream]
        final = await stream.get_final_completion()
    assert "tool_calls.function.arguments.done" in events
    (made,) = final.choices[0].message.tool_calls or []
    assert made.type == "function"
    assert (made.function.name, made.function.arguments) == ("ls", '{"path": "."}')
    assert final.choices[0].finish_reason == "tool_calls"
    assert final.usage
    assert final.usage.prompt_tokens_details
    again: list[Any] = [
        *USER,
        final.choices[0].message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": made.id, "content": "a b"},
    ]
    second = await client.chat.completions.create(model="m", messages=again)
    assert second.choices[0].message.content == "You said it."


async def test_errors_become_the_sdk_s_exceptions(
    client: openai.AsyncOpenAI, service: FakeTurns
) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        await client.responses.create(model="m", input="x", temperature=9)
    assert (bad.value.code, bad.value.param) == ("invalid_request", "temperature")
    assert bad.value.request_id
    service.error = PreviousResponseNotFound()
    with pytest.raises(openai.BadRequestError) as bad:
        await client.responses.create(model="m", input="x", previous_response_id="resp_x")
    assert bad.value.code == "previous_response_not_found"
    service.error = overloaded()
    with pytest.raises(openai.RateLimitError):
        await client.responses.create(model="m", input="x", stream=True)


async def test_a_broken_stream_is_told(service: FakeTurns, client: openai.AsyncOpenAI) -> None:
    service.crash = ZeroDivisionError()
    stream = await client.responses.create(model="m", input="x", stream=True)
    with pytest.raises(openai.APIError) as broken:
        async for _ in stream:
            pass
    assert "internal error" in broken.value.message
    chat = await client.chat.completions.create(model="m", messages=USER, stream=True)
    with pytest.raises(openai.APIError):
        async for _ in chat:
            pass
