"""The supervisor of the engine process outlives what goes wrong around it. A stand-in speaks the engine's frames; no torch."""

import asyncio
from typing import Any

import pytest
from stand_in import AGES_S, PATIENCE_S, READY, Spawner, supervised, until

from engine.api import (
    FRAME_HEADER,
    ContinuationId,
    Prompt,
    Retention,
    SetRetention,
    Shutdown,
    encode_frame,
)
from ninfer_proxy.backends import embedded
from ninfer_proxy.backends.embedded import EngineProcess


def broken(*_: object) -> None:
    raise OSError("the terminal is gone")


async def test_a_listener_that_fails_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    spawner = Spawner(encode_frame(READY))
    async with supervised(monkeypatch, spawner, on_ready=broken) as backend:
        assert await backend.count_tokens(Prompt(())) == 7
        assert backend.status().restarts == 0


async def test_an_engine_that_cannot_be_started_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spawner = Spawner(OSError("no memory"), encode_frame(READY))
    async with supervised(monkeypatch, spawner, on_death=broken) as backend:
        assert await backend.count_tokens(Prompt(())) == 7
        assert backend.status().restarts == 1


async def test_an_engine_that_speaks_nonsense_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    nonsense = FRAME_HEADER.pack(4) + b"!!!!"
    spawner = Spawner(nonsense, encode_frame(READY))
    async with supervised(monkeypatch, spawner) as backend:
        assert await backend.count_tokens(Prompt(())) == 7
        assert backend.status().restarts == 1
        assert len(spawner.processes) == 2


async def test_an_idle_engine_gives_a_sign_of_life_when_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each question is asked only when the last one was answered, so the sixth has been heard five times."""
    spawner = Spawner(encode_frame(READY))
    async with supervised(monkeypatch, spawner, ping_every_s=0.05) as backend:
        await backend.wait_ready()
        await until(lambda: spawner.processes[0].pings >= 6)
        await until(lambda: backend.status().silent_s < 0.05)


async def test_a_hanging_engine_is_silent_and_asked_only_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    due = 0
    ask_once = EngineProcess.ask_once

    def counted(life: EngineProcess, command: Any) -> None:
        nonlocal due
        due += 1
        ask_once(life, command)

    monkeypatch.setattr(EngineProcess, "ask_once", counted)
    spawner = Spawner(encode_frame(READY))
    async with supervised(monkeypatch, spawner, ping_every_s=0.02) as backend:
        await backend.wait_ready()
        (engine,) = spawner.processes
        await until(lambda: engine.pings >= 1)
        engine.hangs, before, due_before = True, engine.pings, due
        await until(lambda: engine.pings > before)
        await until(lambda: due >= due_before + 6)
        assert backend.status().silent_s > 2 * 0.02
        # What was sent before this has been read when this has.
        backend.set_retention([Retention(ContinuationId("c"), 0, 0.0)])
        await until(lambda: engine.heard is SetRetention)
        assert engine.pings == before + 1
        engine.hangs = False


async def test_a_hanging_engine_is_killed_when_its_grace_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spawner = Spawner(encode_frame(READY))
    async with supervised(monkeypatch, spawner) as backend:
        await backend.wait_ready()
        (engine,) = spawner.processes
        engine.hangs = True
        monkeypatch.setattr(embedded, "SHUTDOWN_GRACE_S", AGES_S)
        async with asyncio.timeout(PATIENCE_S):
            await backend.stop(grace_s=0.05)
        assert engine.killed


async def test_an_engine_that_ends_slowly_has_its_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    spawner = Spawner(encode_frame(READY))
    async with supervised(monkeypatch, spawner) as backend:
        await backend.wait_ready()
        (engine,) = spawner.processes
        engine.hangs = True
        stopping = asyncio.create_task(backend.stop(grace_s=AGES_S))
        await until(lambda: engine.heard is Shutdown)
        engine.end()
        async with asyncio.timeout(PATIENCE_S):
            await stopping
        assert not engine.killed
