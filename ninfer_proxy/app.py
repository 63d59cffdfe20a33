"""The composition root: builds every part from the configuration and wires them. Decides nothing, starts and stops nothing."""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any

from starlette.applications import Starlette

from ninfer_proxy.admin.debug import debug_routes, dictating
from ninfer_proxy.admin.routes import admin_routes
from ninfer_proxy.admin.service import Admin
from ninfer_proxy.backends.base import Backend
from ninfer_proxy.backends.hooked import HookedBackend
from ninfer_proxy.compared import Unsteady
from ninfer_proxy.config import ADMIN_TOKEN_FILE, Config
from ninfer_proxy.errors import StartRefused, StoreUnavailable
from ninfer_proxy.http.errors import boundary, error_handlers
from ninfer_proxy.http.routes import routes
from ninfer_proxy.http.settings import HttpSettings
from ninfer_proxy.http.wire_common import WireDefaults
from ninfer_proxy.metrics import Metrics
from ninfer_proxy.planning.policy import Policy
from ninfer_proxy.store.datadir import kept_secret
from ninfer_proxy.store.store import Store
from ninfer_proxy.turn.in_flight import InFlight
from ninfer_proxy.turn.request_log import RequestLog
from ninfer_proxy.turn.runner import TurnRunner, TurnSettings
from ninfer_proxy.types import Sampling

log = logging.getLogger(__name__)

TENANT_SECRET_FILE = "tenant-secret"
STATE_DIR = "engine-state"
UPKEEP_EVERY_S = 3600.0
RETRY_UPKEEP_S = 60.0
DROPS_EVERY_S = 1.0
SETTLE_S = 1.5
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
        stabilise=frozenset(map(Unsteady, config.identity.stabilise)),
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
        "disk_bytes": engine.disk_bytes,
        "disk_dir": str(engine.disk_dir or config.data_dir / STATE_DIR),
        "max_lanes": engine.max_lanes,
        "max_waiting": engine.max_waiting,
        "context_tokens": engine.context_tokens or None,
        "prefill_tokens": engine.prefill_tokens,
        "mixed_prefill_tokens": engine.mixed_prefill_tokens,
        "threads": engine.thread_count,
        "step_timeout_s": engine.step_timeout_s,
    }


def tenant_secret(config: Config) -> bytes:
    """What tells tenants apart without naming them. Errors: StartRefused."""
    return kept_secret(config.data_dir, TENANT_SECRET_FILE).encode()


def http_settings(config: Config) -> HttpSettings:
    return HttpSettings(
        defaults=WireDefaults(
            model=served_name(config),
            strict_model=config.model.strict,
            sampling=Sampling(**asdict(config.sampling)),
            thinking=None,
            max_items=config.limits.max_items,
        ),
        tenant_secret=tenant_secret(config),
        api_keys=config.auth.api_keys,
        max_body_bytes=config.limits.max_body_bytes,
        keep_alive_s=config.server.keep_alive_s,
    )


def admin_token(config: Config) -> str:
    return config.auth.admin_token or kept_secret(config.data_dir, ADMIN_TOKEN_FILE)


def request_log(config: Config) -> RequestLog | None:
    """Errors: StartRefused."""
    path = config.server.request_log
    return None if path is None else RequestLog(path, tenant_secret(config))


def build_app(
    config: Config,
    store: Store,
    backend: Backend,
    metrics: Metrics | None = None,
    in_flight: InFlight | None = None,
    *,
    settle_s: float = SETTLE_S,
) -> Starlette:
    """The whole service over an open store and a backend, which the caller starts and stops. `settle_s` is how long the end
    waits for turns that were called off to be stored.
    """
    policy = policy_of(config)
    metrics, in_flight = metrics or Metrics(), in_flight or InFlight()
    hooked = HookedBackend(backend) if config.server.debug_hooks else None
    backend = hooked or backend
    turns = TurnRunner(
        store,
        backend,
        turn_settings(config),
        metrics,
        in_flight,
        clock=time.time,
        new_id=new_id,
        request_log=request_log(config),
    )
    admin = Admin(store, backend, policy, in_flight.slots, clock=time.time)
    token = admin_token(config)
    return Starlette(
        routes=[
            *routes(turns, http_settings(config), metrics),
            *admin_routes(admin, token),
            *(debug_routes(hooked, token) if hooked else ()),
        ],
        middleware=[boundary(metrics), *([dictating(hooked)] if hooked else ())],
        exception_handlers=error_handlers(metrics),
        lifespan=upkeep(config, store, turns, admin, settle_s),
    )


def upkeep(config: Config, store: Store, turns: TurnRunner, admin: Admin, settle_s: float) -> Any:
    """The background work beside requests: writing down what the engine dropped, removing what is old. Ends when all turns have."""

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
            turns.forget()
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
            await finish_turns(turns, settle_s)

    return lifespan


async def finish_turns(turns: TurnRunner, patience_s: float) -> None:
    """Wait for the turns that still run, but not for one whose engine hangs."""
    try:
        async with asyncio.timeout(patience_s):
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
