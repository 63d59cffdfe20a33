"""/health tells the truth: an engine that hangs, a store that has gone or hangs. Over the scripted backend."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from in_process import InProcess, in_process, user

from ninfer_proxy.backends.base import BackendStatus
from ninfer_proxy.store.check import StoreCheck
from ninfer_proxy.store.datadir import DATABASE_NAME


@pytest.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[InProcess]:
    async with in_process(tmp_path / "data", engine__silence_s=30.0) as running:
        yield running


async def told(proxy: InProcess, status_code: int) -> dict[str, Any]:
    answer: httpx.Response = await proxy.http.get("/health")
    assert answer.status_code == status_code, answer.text
    body: dict[str, Any] = answer.json()
    assert (body["status"] == "ok") == (status_code == 200) == (body["reasons"] == [])
    return body


def silent(proxy: InProcess, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    status = proxy.backend.status()

    def changed() -> BackendStatus:
        return replace(status, silent_s=seconds)

    monkeypatch.setattr(proxy.backend, "status", changed)


async def test_all_is_well(proxy: InProcess) -> None:
    body = await told(proxy, 200)
    assert body["store"] == {"state": "ok", "detail": ""}
    assert body["engine"]["state"] == "ready"
    assert body["turns_in_flight"] == 0


@pytest.mark.parametrize(("seconds", "status_code"), [(29.0, 200), (31.0, 503)])
async def test_an_engine_that_is_silent_for_too_long(
    proxy: InProcess, monkeypatch: pytest.MonkeyPatch, seconds: float, status_code: int
) -> None:
    silent(proxy, monkeypatch, seconds)
    body = await told(proxy, status_code)
    assert body["engine"]["silent_s"] == seconds
    if status_code == 503:
        assert body["status"] == "degraded"
        assert "no sign of life for 31 s" in body["reasons"][0]


async def test_an_engine_on_its_way_is_named_by_its_state(proxy: InProcess) -> None:
    proxy.backend.state = "restarting"
    assert (await told(proxy, 503))["status"] == "restarting"


async def test_a_store_that_has_gone_and_comes_back(proxy: InProcess, tmp_path: Path) -> None:
    (tmp_path / "data").rename(tmp_path / "elsewhere")
    body = await told(proxy, 503)
    assert body["status"] == "degraded"
    assert body["store"]["state"] == "store_unavailable"
    assert DATABASE_NAME in body["reasons"][0]
    (tmp_path / "elsewhere").rename(tmp_path / "data")
    await told(proxy, 200)


async def test_a_store_that_hangs_is_told_in_time_and_not_asked_again(
    proxy: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, asked, free = proxy.store._database, 0, asyncio.Event()

    async def hang(*_: object) -> None:
        nonlocal asked
        asked += 1
        await free.wait()

    monkeypatch.setattr(proxy.store, "_check", StoreCheck(database, patience_s=0.05))
    with monkeypatch.context() as patch:
        patch.setattr(database, "read", hang)
        for body in [await told(proxy, 503) for _ in range(3)]:
            assert body["store"]["state"] == "store_busy"
            assert "doesn't answer" in body["reasons"][0]
        assert asked == 1
    free.set()
    monkeypatch.setattr(proxy.store._check, "_patience_s", 20.0)
    await told(proxy, 200)


async def test_health_writes_nothing(proxy: InProcess, tmp_path: Path) -> None:
    await proxy.create(input=[user("hello")])
    path = tmp_path / "data" / DATABASE_NAME
    files = [path, path.with_name(f"{path.name}-wal")]
    before = [each.read_bytes() for each in files]
    await told(proxy, 200)
    assert [each.read_bytes() for each in files] == before
