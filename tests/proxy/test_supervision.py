"""The supervisor of the engine process outlives what goes wrong around it. A stand-in speaks the engine's frames; no torch."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from engine.api import (
    FRAME_HEADER,
    CountTokens,
    Prompt,
    Ready,
    Shutdown,
    Snapshot,
    TakeSnapshot,
    TokenCount,
    decode_payload,
    encode_frame,
)
from ninfer_proxy.backends import embedded
from ninfer_proxy.backends.embedded import EmbeddedBackend, EngineProcess

READY = Ready("stand-in", "w", "t", 1024, 1, "cpu")
PATIENCE_S = 30.0


class StandIn:
    """In the place of the process: announces a model, answers, and ends when its peer is gone or it is killed. With `hangs` it
    takes everything and answers nothing, not even that it should end.
    """

    def __init__(self, greeting: bytes) -> None:
        self.returncode: int | None = None
        self.hangs = self.killed = False
        self.pings = 0
        self._ended = asyncio.Event()
        self._greeting = greeting
        self.task: asyncio.Task[None] | None = None

    async def run(self, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=connection)
        writer.write(self._greeting)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (size,) = FRAME_HEADER.unpack(await reader.readexactly(FRAME_HEADER.size))
                command = decode_payload(await reader.readexactly(size))
                self.pings += isinstance(command, TakeSnapshot)
                if self.hangs:
                    continue
                if isinstance(command, Shutdown):
                    break
                writer.write(encode_frame(answer(command)))
        writer.close()
        self.returncode = 0
        self._ended.set()

    def kill(self) -> None:
        self.killed = True
        self.returncode = 0
        self._ended.set()

    async def wait(self) -> int:
        await self._ended.wait()
        return 0


def answer(command: object) -> TokenCount | Snapshot:
    if isinstance(command, TakeSnapshot):
        return Snapshot(command.request_id, (), 0, (), ())
    assert isinstance(command, CountTokens)
    return TokenCount(command.request_id, 7)


class Spawner:
    """Gives one stand-in after another; an exception in `lives` is raised instead."""

    def __init__(self, *lives: bytes | OSError) -> None:
        self._lives = list(lives)
        self.processes: list[StandIn] = []

    async def __call__(self, _config: object) -> EngineProcess:
        life = self._lives.pop(0)
        if isinstance(life, OSError):
            raise life
        ours, theirs = socket.socketpair()
        process: Any = StandIn(life)
        process.task = asyncio.create_task(process.run(theirs))
        self.processes.append(process)
        reader, writer = await asyncio.open_connection(sock=ours)
        return EngineProcess(process, reader, writer)


@contextlib.asynccontextmanager
async def supervised(
    monkeypatch: pytest.MonkeyPatch, spawner: Spawner, **options: Any
) -> AsyncIterator[EmbeddedBackend]:
    monkeypatch.setattr(embedded, "spawn", spawner)
    backend = EmbeddedBackend({}, clock=lambda: 1e6, wait_ready_s=PATIENCE_S, **options)
    await backend.start()
    try:
        yield backend
    finally:
        await backend.stop(grace_s=0.1)
        await asyncio.gather(*(each.task for each in spawner.processes if each.task))


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


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)


async def test_an_idle_engine_gives_a_sign_of_life_when_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spawner = Spawner(encode_frame(READY))
    async with supervised(monkeypatch, spawner, ping_every_s=0.05) as backend:
        await backend.wait_ready()
        began = time.monotonic()
        await until(lambda: spawner.processes[0].pings >= 6)
        assert backend.status().silent_s < (time.monotonic() - began) / 2


async def test_a_hanging_engine_is_silent_and_asked_only_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spawner = Spawner(encode_frame(READY))
    async with supervised(monkeypatch, spawner, ping_every_s=0.02) as backend:
        await backend.wait_ready()
        (engine,) = spawner.processes
        engine.hangs, before = True, engine.pings
        await until(lambda: backend.status().silent_s > 0.4)
        assert engine.pings - before <= 1
        engine.hangs = False


async def test_a_hanging_engine_is_killed_when_its_grace_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spawner = Spawner(encode_frame(READY))
    async with supervised(monkeypatch, spawner) as backend:
        await backend.wait_ready()
        (engine,) = spawner.processes
        engine.hangs = True
        began = time.monotonic()
        await backend.stop(grace_s=0.2)
        assert engine.killed
        assert time.monotonic() - began < embedded.SHUTDOWN_GRACE_S / 2
