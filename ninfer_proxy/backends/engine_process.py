"""One life of the engine process: how it is started, its socket, who waits for what, when it was last heard. Knows frames; supervises nothing."""

import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.api import (
    FRAME_HEADER,
    MAX_FRAME_BYTES,
    Command,
    Event,
    ExitStatus,
    RequestId,
    decode_payload,
    encode_frame,
)
from ninfer_proxy.wording import counted


@dataclass(frozen=True, slots=True)
class Died:
    """Told to whoever waits on an engine that ended."""

    how: str


@dataclass(slots=True)
class EngineProcess:
    """Mutable. `heard_at` and `asked_at` are monotonic seconds, of the last event and of the last question after life."""

    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    waiting: dict[RequestId, "asyncio.Queue[Event | Died]"] = field(default_factory=dict)
    heard_at: float = field(default_factory=time.monotonic)
    asked_at: float = 0.0

    @property
    def silent_s(self) -> float:
        return time.monotonic() - self.heard_at

    def hear(self) -> None:
        self.heard_at = time.monotonic()

    def send(self, command: Command) -> None:
        self.writer.write(encode_frame(command))

    def ask_once(self, command: Command) -> None:
        """Send it unless an earlier one still waits for an answer: an engine that hangs isn't given more and more of them."""
        if self.asked_at <= self.heard_at:
            self.asked_at = time.monotonic()
            self.send(command)

    async def receive(self) -> Event | None:
        """The next event, or None when the engine has closed its end."""
        try:
            header = await self.reader.readexactly(FRAME_HEADER.size)
            (size,) = FRAME_HEADER.unpack(header)
            if size > MAX_FRAME_BYTES:
                raise ConnectionError(f"engine sent a frame of {counted(size, 'byte')}")
            event: Event = decode_payload(await self.reader.readexactly(size))
            return event
        except (asyncio.IncompleteReadError, ConnectionError):
            return None


async def spawn(engine_config: Mapping[str, Any], module: str = "engine.serve") -> EngineProcess:
    """Start `python -m engine.serve`, or another module that speaks as it does, with one end of a new socket pair."""
    ours, theirs = socket.socketpair()
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            "--fd",
            str(theirs.fileno()),
            "--config-json",
            json.dumps(engine_config),
            pass_fds=(theirs.fileno(),),
            # Threads that spin while they wait for each other take the cores of whoever else runs here: on busy cores a
            # prefill took two to four times as long.
            env={"OMP_WAIT_POLICY": "passive"} | os.environ,
            stdin=asyncio.subprocess.DEVNULL,
            # A terminal's Ctrl-C reaches the whole group; the proxy ends the engine itself, in order.
            start_new_session=True,
        )
    finally:
        theirs.close()
    reader, writer = await asyncio.open_connection(sock=ours)
    return EngineProcess(process, reader, writer)


_MEANINGS: Mapping[int, str] = {
    ExitStatus.FAULT: "it met a fault that it could not go on from",
    ExitStatus.HUNG: "a step did not end in time",
}


def describe_exit(code: int) -> str:
    """An exit status in words."""
    if code >= 0:
        meaning = _MEANINGS.get(code)
        return f"exit status {code}{f': {meaning}' if meaning else ''}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
