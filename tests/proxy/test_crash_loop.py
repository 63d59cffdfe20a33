"""An engine that dies again and again: requests are refused at once and told when to come back, /health says so, and it ends by itself."""

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from stand_in import AGES_S, PATIENCE_S, READY, Spawner, supervised, until

from engine.api import Prompt, encode_frame
from ninfer_proxy.app import build_app
from ninfer_proxy.backends import embedded
from ninfer_proxy.backends.backoff import Backoff
from ninfer_proxy.backends.embedded import EmbeddedBackend
from ninfer_proxy.config import load
from ninfer_proxy.errors import EngineUnavailable
from ninfer_proxy.store.store import Store

NO_MEMORY = OSError("no memory")


class Waits(Backoff):
    """Waits as long as it was told to; `served` are the lives it heard of."""

    def __init__(self, *waits: float) -> None:
        super().__init__()
        self._waits = list(waits)
        self.served: list[float] = []

    def died(self, served_s: float) -> float:
        super().died(served_s)
        self.served.append(served_s)
        return self._waits.pop(0)


def in_a_loop(backend: EmbeddedBackend) -> bool:
    return backend.status().state == "crash_loop"


async def test_who_waits_and_who_comes_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first comes during the first back-off and waits; the third death in a row ends its hope."""
    spawner = Spawner(NO_MEMORY, NO_MEMORY, NO_MEMORY)
    async with supervised(monkeypatch, spawner, backoff=Waits(0.3, 0.0, 12.0)) as backend:
        await until(lambda: backend.status().restarts == 1)
        assert backend.status().state == "restarting"
        waits = asyncio.create_task(backend.count_tokens(Prompt(())))
        async with asyncio.timeout(PATIENCE_S / 2):
            with pytest.raises(EngineUnavailable, match="3 times in a row"):
                await waits
            assert in_a_loop(backend)
            with pytest.raises(EngineUnavailable, match="no memory") as refused:
                await backend.count_tokens(Prompt(()))
        retry_in_s = backend.status().retry_in_s
        assert retry_in_s is not None
        assert retry_in_s <= 12.0
        assert refused.value.retry_after_s is not None
        assert retry_in_s < refused.value.retry_after_s <= 12 + 5


async def test_it_ends_when_an_engine_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    spawner = Spawner(NO_MEMORY, NO_MEMORY, NO_MEMORY, b"", encode_frame(READY))
    async with supervised(monkeypatch, spawner, backoff=Waits(0, 0, 0, 0)) as backend:
        await until(lambda: len(spawner.processes) == 1)
        # On its way, but nobody waits for the fourth after three deaths.
        assert in_a_loop(backend)
        assert backend.status().retry_in_s is None
        spawner.processes[0].crash()
        await until(lambda: backend.status().state == "ready")
        assert await backend.count_tokens(Prompt(())) == 7
        assert backend.status().restarts == 4


async def test_only_the_time_that_it_served_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A life that was loading for long and then died at once was no good one."""
    waits, clock = Waits(0, 0), [1000.0]
    spawner = Spawner(b"", encode_frame(READY), encode_frame(READY))
    monkeypatch.setattr(embedded, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    async with supervised(monkeypatch, spawner, backoff=waits, ping_every_s=AGES_S) as backend:
        await until(lambda: len(spawner.processes) == 1)
        clock[0] += 600.0
        spawner.processes[0].crash()
        await until(lambda: backend.status().state == "ready")
        clock[0] += 61.0
        spawner.processes[1].crash()
        await until(lambda: len(spawner.processes) == 3)
        assert waits.served == [0.0, 61.0]
        assert waits.deaths == 1


async def test_over_http(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    spawner = Spawner(NO_MEMORY, NO_MEMORY, NO_MEMORY)
    config = load(None, {}, {"server.data_dir": str(tmp_path), "auth.admin_token": "admin"})
    store = await Store.open(tmp_path, clock=time.time, busy_timeout_s=15)
    try:
        async with supervised(monkeypatch, spawner, backoff=Waits(0, 0, 20.0)) as backend:
            transport = httpx.ASGITransport(build_app(config, store, backend))
            await until(lambda: in_a_loop(backend))
            async with httpx.AsyncClient(transport=transport, base_url="http://proxy") as http:
                answer = await http.post("/v1/responses", json={"input": "hello"})
                health = await http.get("/health")
    finally:
        await store.close()
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "engine_unavailable"
    assert 5 < int(answer.headers["retry-after"]) <= 25
    assert health.status_code == 503
    body = health.json()
    assert body["status"] == body["engine"]["state"] == "crash_loop"
    assert 0 < body["engine"]["retry_in_s"] <= 20
    assert body["engine"]["restarts"] == 3
    (reason,) = body["reasons"]
    assert "in a crash loop: it died 3 times in a row" in reason
    assert "no memory" in reason
    assert "It is started again in " in reason
