"""The proxy over a scripted backend inside the test's own process: real store, real identity and planning, no torch. Knows no test."""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from starlette.applications import Starlette

from ninfer_proxy.app import build_app
from ninfer_proxy.backends.scripted import Script, ScriptedBackend, echo
from ninfer_proxy.config import load
from ninfer_proxy.store.store import Store

ADMIN = {"authorization": "Bearer admin"}


@dataclass
class InProcess:
    http: httpx.AsyncClient
    store: Store
    backend: ScriptedBackend
    app: Starlette

    async def create(self, key: str = "k", **body: Any) -> httpx.Response:
        headers: Mapping[str, str] = {"authorization": f"Bearer {key}"} | body.pop("headers", {})
        return await self.http.post("/v1/responses", json={"model": "m"} | body, headers=headers)

    async def slots(self) -> list[dict[str, Any]]:
        answer = await self.http.get("/admin/slots", headers=ADMIN)
        slots: list[dict[str, Any]] = answer.json()["slots"]
        return slots


@asynccontextmanager
async def in_process(
    data_dir: Path, script: Script = echo, **flags: object
) -> AsyncIterator[InProcess]:
    given = {"server.data_dir": str(data_dir), "auth.admin_token": "admin"} | {
        name.replace("__", "."): value for name, value in flags.items()
    }
    config = load(None, {}, given)
    store = await Store.open(data_dir, clock=time.time, busy_timeout_s=config.store.busy_timeout_s)
    backend = ScriptedBackend(script)
    app = build_app(config, store, backend)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://proxy") as http:
            yield InProcess(http, store, backend, app)
    finally:
        await store.close()


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer_of(response: httpx.Response) -> list[dict[str, Any]]:
    """The output's items as a client that keeps texts and calls would send them back."""
    kept = ("message", "function_call")
    return [item for item in response.json()["output"] if item["type"] in kept]


def decision(response: httpx.Response) -> dict[str, str]:
    """`x-ninfer-decision` in parts, the reason under "reason"."""
    reason, *parts = response.headers["x-ninfer-decision"].split("; ")
    return {"reason": reason} | dict(part.split("=", 1) for part in parts)
