"""A uvicorn on a free port of 127.0.0.1 inside the test's own event loop, so that tests see both ends at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.types import ASGIApp


@asynccontextmanager
async def serving(app: ASGIApp, *, grace_s: int | None = None) -> AsyncIterator[int]:
    """The port on which `app` is served while the context is open; then what still runs is called off after `grace_s`."""
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=0,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=grace_s,
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:
        assert not task.done(), "the server ended before it had started"
        await asyncio.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await task
