"""The supervisor of the engine process outlives what goes wrong around it. A stand-in speaks the engine's frames; no torch."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from engine.api import (
    FRAME_HEADER,
    ContinuationId,
    CountTokens,
    Prompt,
    Ready,
    Retention,
    SetRetention,
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
"""A bound for things that happen at once; long because the machine may be busy."""
AGES_S = 1e6


class StandIn:
    """In the place of the process: announces a model, answers, and ends when its peer is gone or it is killed. With `hangs` it
    takes everything and answers nothing, not even that it should end.
    """

    def __init__(self, greeting: bytes) -> None:
        self.returncode: int | None = None
        self.hangs = self.killed = False
        self.pings = 0
        self.heard: type[object] | None = None
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
                self.heard = type(command)
                self.pings += isinstance(command, TakeSnapshot)
                if self.hangs:
                    continue
                if isinstance(command, Shutdown):
                    break
                writer.write(encode_frame(answer(command)))
        writer.close()
        self.end()

    def end(self) -> None:
        self.returncode = 0
        self._ended.set()

    def kill(self) -> None:
        self.killed = True
        self.end()

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
