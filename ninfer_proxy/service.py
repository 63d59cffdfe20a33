"""The service as a process: says where it is, serves until told to stop, ends everything in time. Knows no request."""

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from socket import socket as Socket

import uvicorn
from rich.console import Console
from starlette.applications import Starlette

from engine.api import Loading, Ready
from ninfer_proxy.app import build_app, engine_settings, policy_of, served_name
from ninfer_proxy.backends.base import Backend
from ninfer_proxy.backends.embedded import EmbeddedBackend
from ninfer_proxy.config import ADMIN_TOKEN_FILE, Config
from ninfer_proxy.listen import base_url, listening
from ninfer_proxy.metrics import Metrics
from ninfer_proxy.stopping import Stopping
from ninfer_proxy.store.store import Store
from ninfer_proxy.turn.in_flight import InFlight
from ninfer_proxy.turn.reconcile import Reconciler
from ninfer_proxy.wording import counted

log = logging.getLogger(__name__)

SHUTDOWN_S = 10.0
REQUESTS_SHARE, SETTLE_SHARE, ENGINE_SHARE, KILL_SHARE = 0.4, 0.15, 0.75, 0.8
"""Of the time for shutting down: how long requests may still run and called-off turns take to be stored; by when the engine has
ended by itself, and by when it is killed.
"""
PINGS_IN_SILENCE = 4


def shown(path: Path) -> str:
    """A path as people write it, with ~ for their home."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


class Greeting:
    """Tells whoever started the service how far it is and where it can be reached."""

    def __init__(self, console: Console, config: Config, url: str) -> None:
        self._console = console
        self._config = config
        self._url = url
        self._greeted = False

    def loading(self, event: Loading) -> None:
        share = "" if event.fraction is None else f" {event.fraction:.0%}"
        self._console.print(f"engine: {event.stage}{share}")

    def ready(self, event: Ready) -> None:
        self._console.print(
            f"engine: ready, {event.model} on {event.device}, "
            f"{counted(event.context_tokens, 'token')} of context, {counted(event.max_lanes, 'request')} at once"
        )
        if not self._greeted:
            self._greeted = True
            self._where()

    def _where(self) -> None:
        config, url = self._config, self._url
        token = "as configured"
        if config.auth.admin_token is None:
            token = f"in {shown(config.data_dir / ADMIN_TOKEN_FILE)}"
        self._console.print(f"\nServing {served_name(config)} at {url}/v1")
        self._console.print(f"Admin token: {token}")
        key = " -H 'authorization: Bearer YOUR-KEY'" if config.auth.api_keys else ""
        self._console.print("Try:\n")
        self._console.print(
            f"  curl -s {url}/v1/responses -H 'content-type: application/json'{key} "
            f'-d \'{{"input": "Hello, who are you?"}}\'\n',
            soft_wrap=True,
        )


async def run(config: Config) -> None:
    """Open, serve until told to stop, close. Errors: StartRefused."""
    host = config.server.host
    with listening(host, config.server.port) as socket:
        url = base_url(host, socket.getsockname()[1])
        await run_on(socket, config, Greeting(Console(highlight=False), config, url))


async def run_on(socket: Socket, config: Config, greeting: Greeting) -> None:
    """`run` on a socket that listens already."""
    if config.server.debug_hooks:
        log.warning("debug hooks are on: whoever reaches this server can put words into the model")
    metrics, stopping, in_flight = Metrics(), Stopping(SHUTDOWN_S), InFlight()
    store = await Store.open(
        config.data_dir, clock=time.time, busy_timeout_s=config.store.busy_timeout_s
    )
    reconciler = Reconciler(store, policy_of(config), in_flight, time.time)
    welcome = welcoming(reconciler, greeting, metrics)
    try:
        backend = EmbeddedBackend(
            engine_settings(config),
            clock=time.time,
            on_ready=lambda event: welcome(event, backend),
            on_loading=greeting.loading,
            on_death=metrics.engine_restarted,
            on_prepared=lambda event: metrics.prompt_prepared(event.outcome, event.computed_tokens),
            ping_every_s=config.engine.silence_s / PINGS_IN_SILENCE,
        )
        settle_s = SHUTDOWN_S * SETTLE_SHARE
        app = build_app(config, store, backend, metrics, in_flight, settle_s=settle_s)
        server = HttpServer(uvicorn_settings(app))
    except BaseException:
        await store.close()
        raise
    with stopping.on_signals(server.stop, partial(end_at_once, backend)):
        try:
            await backend.start()
            await server.serve(sockets=[socket])
        finally:
            grace_s = stopping.left_s(ENGINE_SHARE)
            await stopping.finish("the engine", backend.stop(grace_s), KILL_SHARE)
            if not await stopping.finish("the store", store.close()):
                # Its threads would keep the process; all that clients were told of is on disk.
                end(1)


def welcoming(
    reconciler: Reconciler, greeting: Greeting, metrics: Metrics
) -> Callable[[Ready, Backend], None]:
    """What to do when an engine process is ready. Its first requests may come at once: nothing here is waited for."""
    tasks: set[asyncio.Task[None]] = set()

    def welcome(event: Ready, backend: Backend) -> None:
        task = asyncio.create_task(reconciler.engine_ready(backend, event))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        metrics.engine_ready(event.unpinned_host_bytes)
        greeting.ready(event)

    return welcome


def end_at_once(backend: EmbeddedBackend) -> None:
    """What was committed is safe, however the process ends. The engine would notice by itself, but perhaps only after a step."""
    backend.kill()
    end(128 + signal.SIGINT)


def end(code: int) -> None:
    """End the process, whatever its threads wait for."""
    logging.shutdown()
    os._exit(code)


class HttpServer(uvicorn.Server):
    """Leaves signals to the service: they also count while engine and store are being closed."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        self.should_exit = True

    async def shutdown(self, sockets: list[Socket] | None = None) -> None:
        """As uvicorn's, but it tells what it waits for."""
        if running := len(self.server_state.tasks):
            patience_s = self.config.timeout_graceful_shutdown
            log.info(
                "stopping: waiting for %s, at most %s s", counted(running, "request"), patience_s
            )
        await super().shutdown(sockets)


def uvicorn_settings(app: Starlette) -> uvicorn.Config:
    settings = uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=round(SHUTDOWN_S * REQUESTS_SHARE),
        # Agents keep connections open between turns; a tool may take minutes.
        timeout_keep_alive=75,
    )
    logging.getLogger("uvicorn.error").addFilter(is_no_calling_off)
    return settings


def is_no_calling_off(record: logging.LogRecord) -> bool:
    """A request that is called off when the service stops has been told so; its traceback would say nothing."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def serve(config: Config) -> None:
    """Run the service in this process until it is told to stop. Errors: StartRefused."""
    logging.basicConfig(
        level=config.server.log_level.upper(), format="%(asctime)s %(levelname)s %(message)s"
    )
    # Its notes on each migration are for those who write migrations.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    asyncio.run(run(config))
