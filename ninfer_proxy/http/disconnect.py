"""What happens when a client goes while it is being served: its work is called off at once. Knows turns only as things that run."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from starlette.types import Receive

from ninfer_proxy.errors import EngineFault
from ninfer_proxy.events import Broken, Completed, TurnEvent
from ninfer_proxy.http.service import RunningTurn, TurnService
from ninfer_proxy.types import Turn

Result = TypeVar("Result")


class ClientGone(Exception):
    """The client closed the connection; there is no one to answer."""


async def gone(receive: Receive) -> None:
    """Returns when the client has closed the connection. The request's body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


@asynccontextmanager
async def watched(receive: Receive) -> AsyncIterator[asyncio.Task[None]]:
    """A task that ends when the client goes; it is called off with the context."""
    watcher = asyncio.create_task(gone(receive))
    try:
        yield watcher
    finally:
        await call_off(watcher)


async def call_off(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait until it has ended, whatever it ends with."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`, which is cancelled when the client goes. Errors: ClientGone, and those of `work`."""
    task = asyncio.create_task(work)
    try:
        async with watched(receive) as watcher:
            await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGone
    finally:
        await call_off(task)


async def begin(service: TurnService, turn: Turn, receive: Receive) -> RunningTurn:
    """Begin a turn for a client that may go while it waits. Errors: ClientGone, ProxyError."""
    started: list[RunningTurn] = []

    async def work() -> None:
        started.append(await service.begin(turn))

    try:
        await unless_gone(receive, work())
    except BaseException:
        # It may have begun in the very moment the client went.
        for running in started:
            await running.close()
        raise
    return started[0]


async def finish(running: RunningTurn, receive: Receive) -> Completed:
    """The turn's end, for a client that wants only that. Errors: ClientGone, ProxyError."""
    try:
        last = await unless_gone(receive, _last_event(running))
    finally:
        await running.close()
    if isinstance(last, Broken):
        raise last.error
    return last


async def _last_event(running: RunningTurn) -> Completed | Broken:
    async with events_of(running) as events:
        async for event in events:
            if isinstance(event, Completed | Broken):
                return event
    raise EngineFault("The turn ended without a result.")


@asynccontextmanager
async def events_of(running: RunningTurn) -> AsyncIterator[AsyncIterator[TurnEvent]]:
    """The turn's events; what makes them is closed with the context, not when its memory happens to be freed."""
    events = running.events()
    try:
        yield events
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()
