"""The composition root: builds every part from the configuration and wires them; starts and stops them in order. Decides nothing."""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import asdict
from functools import partial
from importlib import resources
from pathlib import Path
from socket import socket as Socket
from typing import Any

import uvicorn
from rich.console import Console
from starlette.applications import Starlette

from engine.api import Loading, Ready
from ninfer_proxy.admin.routes import admin_routes
from ninfer_proxy.admin.service import Admin
from ninfer_proxy.backends.base import Backend
from ninfer_proxy.backends.embedded import EmbeddedBackend
from ninfer_proxy.config import ADMIN_TOKEN_FILE, Config
from ninfer_proxy.errors import StartRefused, StoreUnavailable
from ninfer_proxy.http.errors import boundary, error_handlers
from ninfer_proxy.http.routes import routes
from ninfer_proxy.http.settings import HttpSettings
from ninfer_proxy.http.wire_common import WireDefaults
from ninfer_proxy.listen import base_url, listening
from ninfer_proxy.metrics import Metrics
from ninfer_proxy.planning.policy import Policy
from ninfer_proxy.stopping import Stopping
from ninfer_proxy.store.datadir import kept_secret
from ninfer_proxy.store.store import Store
from ninfer_proxy.turn.in_flight import InFlight
from ninfer_proxy.turn.runner import TurnRunner, TurnSettings
from ninfer_proxy.types import Sampling
from ninfer_proxy.wording import counted

log = logging.getLogger(__name__)

TENANT_SECRET_FILE = "tenant-secret"
UPKEEP_EVERY_S = 3600.0
RETRY_UPKEEP_S = 60.0
DROPS_EVERY_S = 1.0
SHUTDOWN_S = 10.0
REQUESTS_SHARE, SETTLE_SHARE, ENGINE_SHARE, KILL_SHARE = 0.5, 0.2, 0.85, 0.92
"""Of the time for shutting down: how long requests may still run and called-off turns take to be stored; by when the engine has
ended by itself, and by when it is killed.
"""
PINGS_IN_SILENCE = 4
# A free lane is given within one step of the engine, and no step is meant to take as long. Whoever waits longer queues.
DECIDE_WAIT_S = 1.0


def new_id(prefix: str) -> str:
    """`resp` → `resp_5f0c…`, 96 random bits."""
    return f"{prefix}_{secrets.token_hex(12)}"


def policy_of(config: Config) -> Policy:
    slots = config.slots
    return Policy(
        slots=slots.count or None,
        scratch_slots=slots.scratch,
        recent_s=slots.recent_s,
        tool_wait_s=slots.tool_wait_s,
        pin_s=slots.pin_s,
        ladder_tokens=slots.ladder_tokens,
        rewind_tokens=slots.rewind_tokens,
        kept_prompt_ends=slots.kept_prompt_ends,
    )


def turn_settings(config: Config) -> TurnSettings:
    return TurnSettings(
        policy_of(config),
        served_name(config),
        config.model.thinking,
        # No silence on a stream is longer than that of keep-alives, its beginning included.
        decide_wait_s=min(DECIDE_WAIT_S, config.server.keep_alive_s),
        silence_s=config.engine.silence_s,
    )


def model_dir(config: Config) -> Path:
    """Where the weights are. Errors: StartRefused."""
    if config.model.path == "demo":
        return Path(str(resources.files("engine").joinpath("demo")))
    path = Path(config.model.path).expanduser()
    if not (path / "config.json").is_file():
        raise StartRefused(
            f"{path} is not a model directory: it has no config.json. "
            "Name the folder that holds config.json, tokenizer.json and the *.safetensors files, or `demo`."
        )
    return path


def served_name(config: Config) -> str:
    return config.model.name or ("demo" if config.model.path == "demo" else model_dir(config).name)


def engine_settings(config: Config) -> dict[str, Any]:
    """What the engine process is started with (engine.config.EngineConfig as plain data)."""
    engine = config.engine
    return {
        "model_dir": str(model_dir(config)),
        # The GPU path comes with its kernels; until then a card isn't used unless it is asked for.
        "device": "cpu" if engine.device == "auto" else engine.device,
        "kv_dtype": engine.kv_dtype,
        "device_bytes": engine.device_bytes,
        "host_bytes": engine.host_bytes,
        "max_lanes": engine.max_lanes,
        "max_waiting": engine.max_waiting,
        "context_tokens": engine.context_tokens or None,
        "prefill_tokens": engine.prefill_tokens,
        "mixed_prefill_tokens": engine.mixed_prefill_tokens,
        "threads": engine.thread_count,
        "step_timeout_s": engine.step_timeout_s,
    }


def http_settings(config: Config) -> HttpSettings:
    return HttpSettings(
        defaults=WireDefaults(
            model=served_name(config),
            strict_model=config.model.strict,
            sampling=Sampling(**asdict(config.sampling)),
            thinking=None,
            max_items=config.limits.max_items,
        ),
        tenant_secret=kept_secret(config.data_dir, TENANT_SECRET_FILE).encode(),
        api_keys=config.auth.api_keys,
        max_body_bytes=config.limits.max_body_bytes,
        keep_alive_s=config.server.keep_alive_s,
    )


def admin_token(config: Config) -> str:
    return config.auth.admin_token or kept_secret(config.data_dir, ADMIN_TOKEN_FILE)


def build_app(
    config: Config, store: Store, backend: Backend, metrics: Metrics | None = None
) -> Starlette:
    """The whole service over an open store and a backend, which the caller starts and stops."""
    policy, in_flight = policy_of(config), InFlight()
    metrics = metrics or Metrics()
    turns = TurnRunner(
        store,
        backend,
        turn_settings(config),
        metrics,
        in_flight,
        clock=time.time,
        new_id=new_id,
    )
    admin = Admin(store, backend, policy, in_flight.slots, clock=time.time)
    return Starlette(
        routes=[
            *routes(turns, http_settings(config), metrics),
            *admin_routes(admin, admin_token(config)),
        ],
        middleware=[boundary(metrics)],
        exception_handlers=error_handlers(metrics),
        lifespan=upkeep(config, store, turns, admin),
    )


def upkeep(config: Config, store: Store, turns: TurnRunner, admin: Admin) -> Any:
    """The background work beside requests: writing down what the engine dropped, removing what is old."""

    async def note_drops() -> None:
        while True:
            await asyncio.sleep(DROPS_EVERY_S)
            await turns.record_drops()

    async def sweep() -> None:
        days = config.store.retention_days
        while days:
            before = time.time() - days * 86_400
            await admin.release_unused(before)
            await store.sweep(before)
            await asyncio.sleep(UPKEEP_EVERY_S)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(persistently(work)) for work in (note_drops, sweep)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            # What was called off is stored as far as it came.
            await finish_turns(turns)

    return lifespan


async def finish_turns(turns: TurnRunner) -> None:
    """Wait for the turns that still run, but not for one whose engine hangs."""
    try:
        async with asyncio.timeout(SHUTDOWN_S * SETTLE_SHARE):
            await turns.idle()
    except TimeoutError:
        log.error("stopping: turns still run; what they said is not stored")


async def persistently(work: Any) -> None:
    """Run background work again when it fails: a full disk now must not end upkeep for good."""
    while True:
        try:
            await work()
            return
        except StoreUnavailable as error:
            log.warning("upkeep is tried again in a minute: %s", error.message)
        except Exception:
            log.exception("upkeep failed; it is tried again in a minute")
        await asyncio.sleep(RETRY_UPKEEP_S)


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
    metrics, stopping = Metrics(), Stopping(SHUTDOWN_S)
    store = await Store.open(
        config.data_dir, clock=time.time, busy_timeout_s=config.store.busy_timeout_s
    )
    try:
        backend = EmbeddedBackend(
            engine_settings(config),
            clock=time.time,
            on_ready=newborn(store, greeting),
            on_loading=greeting.loading,
            on_death=metrics.engine_restarted,
            ping_every_s=config.engine.silence_s / PINGS_IN_SILENCE,
        )
        server = HttpServer(uvicorn_settings(build_app(config, store, backend, metrics)))
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


def newborn(store: Store, greeting: Greeting) -> Callable[[Ready], None]:
    """What to do when an engine process is ready: it holds nothing yet, and the records must say so."""
    tasks: set[asyncio.Task[Any]] = set()

    async def reconcile() -> None:
        try:
            await store.reconcile({}, "the engine was restarted")
        except StoreUnavailable as error:
            log.warning("the records still tell what the last engine held: %s", error.message)

    def on_ready(event: Ready) -> None:
        task = asyncio.create_task(reconcile())
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        greeting.ready(event)

    return on_ready


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
