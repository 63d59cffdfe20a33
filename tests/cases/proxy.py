"""The proxy under test: a real process on a data directory, started as a case's profile asks. Knows the admin API; no case."""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from ninfer_proxy.config import settings
from tests.proxy.real_service import ADMIN_TOKEN, RealService

MIB = 1 << 20
OTHER_KV_TYPE = "bfloat16"
STABILISE = "identity.stabilise"
GONE_WAIT_S = 15.0
POLL_S = 0.03


class Unsupported(Exception):
    """A case wants something this runner or this proxy has not; the message names it."""


class Proxy:
    """Mutable: `start`, `stop` and `kill` may follow each other on the same data. `options` are those of profiles and restarts.
    Errors: Unsupported for an option unknown here.
    """

    def __init__(self, folder: Path, options: Mapping[str, Any]) -> None:
        self.data_dir = folder / "data"
        self.options = dict(options)
        self.ready_s = 0.0
        self._service: RealService | None = None
        self._flags, self._env = settings_of(self.options)

    @property
    def url(self) -> str:
        assert self._service is not None
        return self._service.url

    @property
    def is_running(self) -> bool:
        service = self._service
        return (
            service is not None and service.process is not None and service.process.poll() is None
        )

    @property
    def log(self) -> str:
        path = self.data_dir.with_suffix(".log")
        return path.read_text(errors="replace") if path.exists() else ""

    def launch(self) -> None:
        """Starts the process and waits for nothing."""
        self.data_dir.parent.mkdir(parents=True, exist_ok=True)
        self._service = RealService(self.data_dir, "--debug-hooks", *self._flags, **self._env)
        self._service.launch()

    async def start(self) -> None:
        """Returns when it is ready; `ready_s` says how long that took."""
        began = time.monotonic()
        self.launch()
        assert self._service is not None
        await asyncio.to_thread(self._service.wait_ready)
        self.ready_s = time.monotonic() - began

    async def stop(self) -> None:
        if self._service is not None:
            await asyncio.to_thread(self._service.stop)

    def kill(self) -> None:
        """SIGKILL."""
        assert self._service is not None
        self._service.kill()

    def change(self, options: Mapping[str, Any]) -> None:
        """For the next start."""
        self.options |= options
        self._flags, self._env = settings_of(self.options)

    @property
    def budget_bytes(self) -> int:
        """Of the engine's tiers in memory, where the options set them."""
        return sum(int(self._env[name]) for name in self._env if name.endswith("_BYTES"))

    def memory_bytes(self) -> int:
        """Resident bytes of the engine process."""
        assert self._service is not None
        status = Path(f"/proc/{self._service.engine_pid()}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024

    # --- the admin API --------------------------------------------------------------------------

    async def admin(self, path: str, method: str = "GET") -> dict[str, Any] | None:
        """Its JSON; None for an answer that is no 200."""
        headers = {"authorization": f"Bearer {ADMIN_TOKEN}"}
        async with httpx.AsyncClient(base_url=self.url, timeout=60, trust_env=False) as client:
            answer = await client.request(method, f"/admin/{path}", headers=headers)
        body: dict[str, Any] = answer.json()
        return body if answer.status_code == 200 else None

    async def get(self, path: str, headers: Mapping[str, str]) -> dict[str, Any] | None:
        """A client's GET; None for an answer that is no 200."""
        async with httpx.AsyncClient(base_url=self.url, timeout=60, trust_env=False) as client:
            answer = await client.get(path, headers=dict(headers))
        body: dict[str, Any] = answer.json()
        return body if answer.status_code == 200 else None

    async def text(self, path: str) -> str:
        async with httpx.AsyncClient(base_url=self.url, timeout=60, trust_env=False) as client:
            return (await client.get(path)).text

    async def drop_caches(self) -> None:
        await self.admin("debug/drop-caches", "POST")

    async def lane_of(self, response_id: str) -> Mapping[str, Any] | None:
        """The engine's lane of a request; None when it has none."""
        status = await self.admin("status") or {}
        lanes = status.get("lanes") or ()
        return next((lane for lane in lanes if lane["request"] == response_id), None)

    async def waiting(self) -> int:
        return int((await self.admin("status") or {}).get("waiting") or 0)

    async def state_bytes(self) -> int:
        """What the engine keeps in memory."""
        tiers = (await self.admin("status") or {})["tiers"]
        return sum(int(tier["used_bytes"]) for tier in tiers if tier["tier"] != "disk")

    async def let_go(self, response_id: str) -> float | None:
        """Seconds from now until no lane runs a request; None when that takes too long."""
        began = time.monotonic()
        while await self.lane_of(response_id) is not None:
            if time.monotonic() - began > GONE_WAIT_S:
                return None
            await asyncio.sleep(POLL_S)
        return time.monotonic() - began


def settings_of(options: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    """Flags and environment. A slot of a case is a place to run in as well as one to keep state in. Errors: Unsupported."""
    flags: list[str] = []
    env: dict[str, str] = {}
    for name, value in options.items():
        match name, value:
            case "slots", int():
                flags.append(f"--slots={value}")
                env["NINFER_PROXY_ENGINE_MAX_LANES"] = str(value)
            case "tenant_isolation", True:
                """Always on: each API key is a tenant."""
            case "host_cache_mb", int():
                # The device gets as much, so that state has to leave it.
                env["NINFER_PROXY_ENGINE_HOST_BYTES"] = str(value * MIB)
                env["NINFER_PROXY_ENGINE_DEVICE_BYTES"] = str(value * MIB)
            case "kv_type", "other":
                env["NINFER_PROXY_ENGINE_KV_DTYPE"] = OTHER_KV_TYPE
            case "small_device", True:
                # A second prompt of some thousand tokens pushes the first one out.
                env["NINFER_PROXY_ENGINE_DEVICE_BYTES"] = str(24 * MIB)
                env["NINFER_PROXY_ENGINE_CONTEXT_TOKENS"] = "8192"
            case "stabilise", str() if any(each.name == STABILISE for each in settings()):
                env["NINFER_PROXY_IDENTITY_STABILISE"] = value
            case _:
                raise Unsupported(f"option {name}={value!r}")
    return flags, env
