"""A stand-in for the engine process that speaks its frames; a supervisor is run over it. No torch. Knows no test."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from engine.api import (
    FRAME_HEADER,
    Cancel,
    CountTokens,
    Prefetch,
    Prepare,
    Prepared,
    PrepareOutcome,
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
        self.commands: list[object] = []
        self._ended = asyncio.Event()
        self._greeting = greeting
        self.task: asyncio.Task[None] | None = None
        self._crash = asyncio.Event()

    async def run(self, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=connection)
        writer.write(self._greeting)
        serving = asyncio.create_task(self._serve(reader, writer))
        crashing = asyncio.create_task(self._crash.wait())
        await asyncio.wait([serving, crashing], return_when=asyncio.FIRST_COMPLETED)
        for task in (serving, crashing):
            task.cancel()
        await asyncio.gather(serving, crashing, return_exceptions=True)
        writer.close()
        self.end(-9 if self._crash.is_set() else 0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (size,) = FRAME_HEADER.unpack(await reader.readexactly(FRAME_HEADER.size))
                command = decode_payload(await reader.readexactly(size))
                self.heard = type(command)
                self.commands.append(command)
                self.pings += isinstance(command, TakeSnapshot)
                if self.hangs:
                    continue
                if isinstance(command, Shutdown):
                    break
                if (event := answer(command)) is not None:
                    writer.write(encode_frame(event))

    def crash(self) -> None:
        """As a process that is killed from outside."""
        self._crash.set()

    def end(self, code: int = 0) -> None:
        if self.returncode is None:
            self.returncode = code
        self._ended.set()

    def kill(self) -> None:
        self.killed = True
        self.end()

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode


def answer(command: object) -> TokenCount | Snapshot | Prepared | None:
    """None for what has none."""
    if isinstance(command, TakeSnapshot):
        return Snapshot(command.request_id, (), 0, (), ())
    if isinstance(command, Prepare):
        return Prepared(command.request_id, PrepareOutcome.DONE, 5, 3)
    if isinstance(command, CountTokens):
        return TokenCount(command.request_id, 7)
    assert isinstance(command, Cancel | Prefetch)
    return None


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


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)
