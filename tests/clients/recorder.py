"""A pass-through in front of the proxy that writes down what went by, and when. Changes no byte on its way."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from tests.clients.classify import items_of

HOP_BY_HOP = {"host", "connection", "content-length", "transfer-encoding", "keep-alive"}
DECISION = "x-ninfer-decision"

Script = Callable[[Mapping[str, Any], list[dict[str, Any]]], list[dict[str, Any]] | None]
"""(body, whole history) → the output items of a scripted answer, or None: the proxy answers."""


@dataclass(slots=True)
class Exchange:
    """One request and what came back. Filled while the answer streams; `ended` is set last."""

    number: int
    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    history: list[dict[str, Any]]  # the whole input, what previous_response_id stands for included
    started: float
    status: int | None = None
    decision: str | None = None
    first_byte_s: float | None = None
    first_content_s: float | None = None
    ended: float | None = None
    response: dict[str, Any] = field(default_factory=dict)  # of the terminal event
    error: str | None = None
    scripted: bool = False

    @property
    def response_id(self) -> str | None:
        return self.response.get("id")

    @property
    def usage(self) -> dict[str, Any]:
        return self.response.get("usage") or {}

    @property
    def input_tokens(self) -> int:
        return int(self.usage.get("input_tokens", 0))

    @property
    def cached_tokens(self) -> int:
        return int((self.usage.get("input_tokens_details") or {}).get("cached_tokens", 0))

    @property
    def prefilled_tokens(self) -> int:
        return self.input_tokens - self.cached_tokens

    @property
    def answered(self) -> bool:
        """A whole answer, or one cut at the token limit: a tiny model may ramble, and the client goes on."""
        return self.response.get("status") in ("completed", "incomplete")


class EventReader:
    """Server-sent events from chunks cut anywhere. `feed` gives the JSON of each event that is now whole."""

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, chunk: bytes) -> list[dict[str, Any]]:
        self._pending = (self._pending + chunk).replace(b"\r\n", b"\n")
        *whole, self._pending = self._pending.split(b"\n\n")
        return [event for frame in whole if (event := self._event(frame))]

    @staticmethod
    def _event(frame: bytes) -> dict[str, Any] | None:
        data = [line[5:].strip() for line in frame.split(b"\n") if line.startswith(b"data:")]
        text = b"\n".join(data)
        return json.loads(text) if text.startswith(b"{") else None


class Recorder:
    """Serves on 127.0.0.1:`port` in a thread of its own while in the `with` block; `exchanges` in order of arrival."""

    def __init__(self, target: str, port: int, script: Script | None = None) -> None:
        self.exchanges: list[Exchange] = []
        self.port = port
        self._script = script
        self._target = target
        self._answered: dict[str, list[dict[str, Any]]] = {}  # response id → history after it
        self._client: httpx.AsyncClient
        app = Starlette(
            routes=[Route("/{path:path}", self._pass, methods=["GET", "POST", "DELETE"])],
            lifespan=self._lifespan,
        )
        config = uvicorn.Config(
            app, host="127.0.0.1", port=port, log_level="error", timeout_graceful_shutdown=2
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, name="recorder", daemon=True)

    def __enter__(self) -> "Recorder":
        self._thread.start()
        deadline = time.monotonic() + 20
        while not self._server.started:
            if time.monotonic() > deadline or not self._thread.is_alive():
                raise RuntimeError(f"the recorder could not listen on port {self.port}")
            time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=10)

    def in_flight(self) -> int:
        return sum(exchange.ended is None for exchange in self.exchanges)

    def save(self, path: Path) -> None:
        """All that was recorded, one JSON object a line, for whoever has to find out what went wrong."""
        with path.open("w", encoding="utf-8") as lines:
            for exchange in self.exchanges:
                shown = asdict(exchange) | {"history": len(exchange.history)}
                lines.write(json.dumps(shown, ensure_ascii=False) + "\n")

    def last_activity(self) -> float:
        """Monotonic time of the latest arrival or end of a request."""
        return max((max(e.started, e.ended or 0.0) for e in self.exchanges), default=0.0)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        async with httpx.AsyncClient(base_url=self._target, timeout=None) as self._client:
            yield

    async def _pass(self, request: Request) -> Response:
        raw = await request.body()
        exchange = self._opened(request, raw)
        played = self._script(exchange.body, exchange.history) if self._script else None
        if played is not None:
            return self._play(exchange, played)
        sent = self._client.build_request(
            request.method,
            request.url.path + (f"?{request.url.query}" if request.url.query else ""),
            headers=[(k, v) for k, v in request.headers.items() if k not in HOP_BY_HOP],
            content=raw,
        )
        try:
            answer = await self._client.send(sent, stream=True)
        except httpx.HTTPError as fault:
            exchange.error, exchange.ended = repr(fault), time.monotonic()
            return Response("the proxy did not answer", status_code=502)
        exchange.status = answer.status_code
        exchange.decision = answer.headers.get(DECISION)
        headers = {k: v for k, v in answer.headers.items() if k.lower() not in HOP_BY_HOP}
        return StreamingResponse(
            self._relay(exchange, answer), status_code=answer.status_code, headers=headers
        )

    def _opened(self, request: Request, raw: bytes) -> Exchange:
        try:
            body = json.loads(raw) if raw else {}
        except ValueError:
            body = {}
        body = body if isinstance(body, dict) else {}
        before = self._answered.get(str(body.get("previous_response_id")), [])
        exchange = Exchange(
            number=len(self.exchanges) + 1,
            method=request.method,
            path=request.url.path,
            headers=dict(request.headers),
            body=body,
            history=before + items_of(body),
            started=time.monotonic(),
        )
        self.exchanges.append(exchange)
        return exchange

    async def _relay(self, exchange: Exchange, answer: httpx.Response) -> AsyncIterator[bytes]:
        streamed = answer.headers.get("content-type", "").startswith("text/event-stream")
        reader, whole = EventReader(), b""
        try:
            async for chunk in answer.aiter_raw():
                exchange.first_byte_s = exchange.first_byte_s or time.monotonic() - exchange.started
                if streamed:
                    for event in reader.feed(chunk):
                        self._note(exchange, event)
                else:
                    whole += chunk
                yield chunk
        except httpx.HTTPError as fault:  # the stream broke; the client must see it break too
            exchange.error = repr(fault)
            raise
        except (asyncio.CancelledError, GeneratorExit):
            if not exchange.response:  # after the last event leaving is the client's right
                exchange.error = "the client went away"
            raise
        finally:
            if not streamed:
                self._note_plain(exchange, whole)
            exchange.ended = time.monotonic()
            with_shield = asyncio.shield(
                answer.aclose()
            )  # closing tells the proxy that nobody listens
            await with_shield

    def _note(self, exchange: Exchange, event: Mapping[str, Any]) -> None:
        kind = str(event.get("type", ""))
        content = kind.endswith(".delta") or kind == "response.output_item.done"
        if content and exchange.first_content_s is None:
            exchange.first_content_s = time.monotonic() - exchange.started
        if kind in ("response.completed", "response.incomplete", "response.failed"):
            self._finished(exchange, event.get("response") or {})
        elif kind == "error":
            exchange.error = json.dumps(event)

    def _note_plain(self, exchange: Exchange, whole: bytes) -> None:
        try:
            answer = json.loads(whole)
        except ValueError:
            return
        if isinstance(answer, dict) and answer.get("object") == "response":
            self._finished(exchange, answer)
        elif exchange.status is not None and exchange.status >= 400:
            exchange.error = whole.decode(errors="replace")[:500]

    def _finished(self, exchange: Exchange, response: dict[str, Any]) -> None:
        exchange.response = response
        if exchange.response_id:
            self._answered[exchange.response_id] = exchange.history + response.get("output", [])

    def _play(self, exchange: Exchange, output: list[dict[str, Any]]) -> Response:
        exchange.scripted, exchange.status = True, 200
        response = {
            "id": f"resp_scripted_{exchange.number}",
            "object": "response",
            "created_at": int(time.time()),
            "model": exchange.body.get("model"),
            "status": "completed",
            "output": output,
            "usage": {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0},
        }
        self._finished(exchange, response)
        exchange.first_byte_s = exchange.first_content_s = time.monotonic() - exchange.started
        exchange.ended = time.monotonic()
        event = {"type": "response.completed", "sequence_number": 0, "response": response}
        frame = f"event: response.completed\ndata: {json.dumps(event)}\n\n"
        return Response(frame, media_type="text/event-stream")
