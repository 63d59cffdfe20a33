"""Streams over a real socket: one frame a write, comments in silence, and clients that leave at the worst moments."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from fake_turns import SETTINGS, FakeTurns, build
from live_server import serving

from ninfer_proxy.backends.scripted import Performance, Script, text
from ninfer_proxy.http.settings import HttpSettings

SOON_S = 20.0
"""A bound for things that happen at once; long because the machine may be busy."""


def post(path: str, body: bytes, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: x", f"content-length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@asynccontextmanager
async def connected(
    service: FakeTurns, settings: HttpSettings = SETTINGS
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with serving(build(service, settings)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            yield reader, writer
        finally:
            writer.close()


def once_silent() -> Script:
    """Says one word and then nothing until it is cancelled."""
    return lambda _: Performance((text("one"), text("two")), hang_after=1)


async def soon(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON_S):
        while not condition():
            await asyncio.sleep(0.005)


RESPONSES = ("/v1/responses", {"input": "x"})
CHAT = ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("request_of", [RESPONSES, CHAT])
async def test_leaving_during_generation_cancels_it(
    request_of: tuple[str, dict[str, Any]], stream: bool
) -> None:
    path, body = request_of
    service = FakeTurns(once_silent())
    async with connected(service) as (_, writer):
        writer.write(post(path, json.dumps({**body, "stream": stream}).encode()))
        await soon(lambda: len(service.backend.requests) == 1)
        writer.close()
        await soon(lambda: service.backend.cancelled == ["r1"])
        await asyncio.wait_for(service.turns[0].closed.wait(), SOON_S)
        assert service.turns[0].cancelled


@pytest.mark.parametrize("stream", [True, False])
async def test_leaving_before_the_turn_begins_cancels_the_wait(stream: bool) -> None:
    service = FakeTurns()
    service.begin_s = 1000.0
    async with connected(service) as (_, writer):
        writer.write(post("/v1/responses", json.dumps({"input": "x", "stream": stream}).encode()))
        await soon(lambda: len(service.asked) == 1)
        writer.close()
        await asyncio.wait_for(service.begin_cancelled.wait(), SOON_S)
        assert service.turns == []


async def test_leaving_during_prefill_cancels_it() -> None:
    service = FakeTurns(lambda _: Performance((text("late"),), queue_s=1000.0))
    async with connected(service) as (reader, writer):
        writer.write(post("/v1/responses", b'{"input": "x", "stream": true}'))
        await asyncio.wait_for(reader.readuntil(b"response.in_progress"), SOON_S)
        writer.close()
        await soon(lambda: service.backend.cancelled == ["r1"])


async def test_leaving_in_the_middle_of_the_body_harms_nobody() -> None:
    service = FakeTurns()
    async with serving(build(service)) as port:
        for _ in range(3):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(post("/v1/responses", b"x" * 1000)[:-500])
            await writer.drain()
            writer.close()
        answer = await whole_answer(port, b'{"input": "x"}')
    assert answer.startswith(b"HTTP/1.1 200")
    assert len(service.asked) == 1


async def whole_answer(port: int, body: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(post("/v1/responses", body, "connection: close"))
    answer = await asyncio.wait_for(reader.read(), SOON_S)
    writer.close()
    return answer


@pytest.mark.parametrize("request_of", [RESPONSES, CHAT])
async def test_a_server_that_stops_says_so_in_its_streams(
    request_of: tuple[str, dict[str, Any]],
) -> None:
    path, body = request_of
    service = FakeTurns(once_silent())
    async with serving(build(service, SETTINGS), grace_s=0) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(post(path, json.dumps(body | {"stream": True}).encode()))
        await reader.readuntil(b"one")
    async with asyncio.timeout(SOON_S):
        rest = await reader.read()
    writer.close()
    assert b"The service is stopping." in rest
    assert rest.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    await soon(lambda: len(service.backend.cancelled) == 1)


async def test_a_server_that_stops_says_so_to_who_waits_for_an_answer() -> None:
    service = FakeTurns(once_silent())
    async with serving(build(service, SETTINGS), grace_s=0) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(post("/v1/responses", b'{"input": "x"}'))
        await soon(lambda: len(service.backend.requests) == 1)
    async with asyncio.timeout(SOON_S):
        answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 503")
    assert b'"code":"engine_unavailable"' in answer
    assert b"retry-after: 5" in answer


async def test_silence_is_filled_with_comments_and_now_and_then_an_event() -> None:
    service = FakeTurns(lambda _: Performance((text("late"),), queue_s=0.5))
    settings = replace(SETTINGS, keep_alive_s=0.02, still_running_s=0.1)
    async with serving(build(service, settings)) as port:
        answer = await whole_answer(port, b'{"input": "x", "stream": true}')
    assert answer.count(b": keep-alive\n\n") >= 5
    payloads = [
        json.loads(line[6:]) for line in answer.decode().splitlines() if line.startswith("data: {")
    ]
    kinds = [payload["type"] for payload in payloads]
    assert kinds.count("response.in_progress") >= 3
    assert kinds[-1] == "response.completed"
    assert [payload["sequence_number"] for payload in payloads] == list(range(len(payloads)))


async def test_a_busy_stream_has_no_comments() -> None:
    service = FakeTurns(lambda _: Performance(tuple(text(f"w{n} ") for n in range(50))))
    async with serving(build(service)) as port:
        answer = await whole_answer(port, b'{"input": "x", "stream": true}')
    assert b"keep-alive" not in answer


Send = Callable[[dict[str, Any]], Awaitable[None]]


@pytest.mark.parametrize("request_of", [RESPONSES, CHAT])
async def test_one_frame_is_one_write(request_of: tuple[str, dict[str, Any]]) -> None:
    path, body = request_of
    sent: list[dict[str, Any]] = []
    app = build(FakeTurns(lambda _: Performance((text("a\n\nb"), text("c")))))
    messages = [{"type": "http.request", "body": json.dumps({**body, "stream": True}).encode()}]

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await asyncio.Event().wait()
        raise AssertionError("nobody disconnects here")

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [],
    }
    await app(scope, receive, send)
    bodies = [message["body"] for message in sent[1:]]
    assert bodies[-1] == b""
    assert bodies[-2] == b"data: [DONE]\n\n"
    for one in bodies[:-1]:
        assert one.endswith(b"\n\n")
        assert one.count(b"\n\n") == 1


LIMITED = replace(SETTINGS, max_body_bytes=10_000)


async def test_a_declared_large_body_is_refused_before_it_is_sent() -> None:
    async with connected(FakeTurns(), LIMITED) as (reader, writer):
        writer.write(b"POST /v1/responses HTTP/1.1\r\nhost: x\r\ncontent-length: 104857600\r\n\r\n")
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SOON_S)
    assert head.startswith(b"HTTP/1.1 413")


async def test_an_undeclared_large_body_is_refused_at_the_limit() -> None:
    service = FakeTurns()
    async with connected(service, LIMITED) as (reader, writer):
        writer.write(
            b"POST /v1/responses HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        for _ in range(3):
            writer.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SOON_S)
    assert head.startswith(b"HTTP/1.1 413")
    assert service.asked == []


async def test_a_client_that_sends_all_of_a_large_body_gets_its_answer_and_may_go_on() -> None:
    service = FakeTurns()
    async with connected(service, LIMITED) as (reader, writer):
        writer.write(post("/v1/responses", b"x" * 5_000_000))
        await asyncio.wait_for(writer.drain(), SOON_S)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SOON_S)
        assert head.startswith(b"HTTP/1.1 413")
        assert b"body_too_large" in await asyncio.wait_for(reader.readuntil(b"}}"), SOON_S)
        writer.write(post("/v1/responses", b'{"input": "x"}'))
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SOON_S)
    assert head.startswith(b"HTTP/1.1 200")
