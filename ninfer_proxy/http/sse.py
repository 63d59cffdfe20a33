"""A running turn as server-sent events over ASGI: framing and keep-alive. Knows no wire format and nothing of how turns run."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

import orjson
from starlette.types import Receive, Scope, Send

from ninfer_proxy.errors import EngineFault, ProxyError
from ninfer_proxy.events import Broken, Completed, TurnEvent
from ninfer_proxy.http.disconnect import ClientGone, call_off, events_of, watched
from ninfer_proxy.http.errors import OK, stopping
from ninfer_proxy.http.service import RunningTurn

logger = logging.getLogger(__name__)

KEEP_ALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"


class Encoder(Protocol):
    """One stream's wire format. Each payload becomes one frame."""

    def start(self) -> list[dict[str, Any]]: ...

    def encode(self, event: TurnEvent) -> list[dict[str, Any]]: ...

    def still_running(self) -> dict[str, Any]: ...

    def broken(self, error: ProxyError) -> list[dict[str, Any]]: ...


def frame(payload: Mapping[str, Any]) -> bytes:
    """One SSE frame; the payload's `type`, where it has one, is the event's name."""
    data = b"data: " + orjson.dumps(payload) + b"\n\n"
    return b"event: " + payload["type"].encode() + b"\n" + data if "type" in payload else data


class EventStream:
    """ASGI response: a running turn as SSE. When the client goes, the turn is closed at once, also while nothing is being sent.

    After `keep_alive_s` of silence a comment is sent; after `still_running_s` of silence an event, since some clients
    count only those.
    """

    def __init__(
        self,
        running: RunningTurn,
        encoder: Encoder,
        *,
        headers: Mapping[str, str],
        keep_alive_s: float,
        still_running_s: float,
    ) -> None:
        self._running = running
        self._encoder = encoder
        self._headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
            "x-accel-buffering": "no",
            **headers,
        }
        self._keep_alive_s = keep_alive_s
        self._still_running_s = still_running_s
        self._written_at = self._event_at = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._send_start(send)
            async with watched(receive) as watcher:
                await self._send_events(send, watcher)
        except ClientGone:
            logger.info("client left response %s", self._running.response_id)
            return
        finally:
            await self._running.close()
        await self._send_last(send)

    async def _send_start(self, send: Send) -> None:
        headers = [
            (name.encode(), value.encode("latin-1")) for name, value in self._headers.items()
        ]
        await send({"type": "http.response.start", "status": OK, "headers": headers})
        await self._send_frames(send, self._encoder.start())

    async def _send_events(self, send: Send, watcher: asyncio.Task[None]) -> None:
        ended = False
        try:
            async with events_of(self._running) as events:
                while not ended:
                    event = await self._next(events, send, watcher)
                    await self._send_frames(send, self._encoder.encode(event))
                    ended = isinstance(event, Completed | Broken)
        except ClientGone:
            raise
        except asyncio.CancelledError:
            # The server stops: clients are told so, instead of losing the connection in the middle of an answer.
            if not ended:
                await self._send_frames(send, self._encoder.broken(stopping()))
                await self._send_bytes(send, DONE)
            await self._send_last(send)
            raise
        except Exception as error:
            told = self._told(error)
            if not ended:
                await self._send_frames(send, self._encoder.broken(told))
        await self._send_bytes(send, DONE)

    def _told(self, error: Exception) -> ProxyError:
        """The error as the client is told it; what wasn't expected goes to the log."""
        if isinstance(error, ProxyError):
            return error
        logger.error("response %s broke", self._running.response_id, exc_info=error)
        return EngineFault("The turn ended by an internal error.")

    async def _next(
        self, events: AsyncIterator[TurnEvent], send: Send, watcher: asyncio.Task[None]
    ) -> TurnEvent:
        """The next event; keeps the connection warm while waiting. Errors: ClientGone, and those of the turn."""
        step = asyncio.create_task(_step(events))
        try:
            while True:
                await asyncio.wait(
                    {step, watcher},
                    timeout=self._keep_alive_s - self._silent_for(self._written_at),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if watcher.done():
                    raise ClientGone
                if self._silent_for(self._written_at) >= self._keep_alive_s:
                    await self._break_silence(send)
                if step.done():
                    return step.result()
        finally:
            if not step.done():
                await call_off(step)

    def _silent_for(self, since: float) -> float:
        return asyncio.get_running_loop().time() - since

    async def _break_silence(self, send: Send) -> None:
        if self._silent_for(self._event_at) < self._still_running_s:
            await self._send_bytes(send, KEEP_ALIVE)
        else:
            await self._send_frames(send, [self._encoder.still_running()])

    async def _send_frames(self, send: Send, payloads: Sequence[Mapping[str, Any]]) -> None:
        for payload in payloads:
            await self._send_bytes(send, frame(payload))
            self._event_at = self._written_at

    async def _send_bytes(self, send: Send, body: bytes) -> None:
        """One frame is one write: some readers lose a frame that arrives in two."""
        await send({"type": "http.response.body", "body": body, "more_body": True})
        self._written_at = asyncio.get_running_loop().time()

    @staticmethod
    async def _send_last(send: Send) -> None:
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _step(events: AsyncIterator[TurnEvent]) -> TurnEvent:
    try:
        return await anext(events)
    except StopAsyncIteration:
        raise EngineFault("The turn ended without a result.") from None
