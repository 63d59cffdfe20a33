"""The engine process: frames in, events out over an inherited socket. Knows the door and the threads, nothing they do.

reader's threads:  frame → command → (prompts become tokens) → inbox
main thread:       the loop; each step's events leave in one write
disk's thread:     reads and writes files; wakes the loop when it has done something
"""

import argparse
import contextlib
import faulthandler
import logging
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from queue import SimpleQueue

from engine.api import (
    FRAME_HEADER,
    MAX_FRAME_BYTES,
    Command,
    Event,
    ExitStatus,
    decode_payload,
    encode_frame,
)
from engine.assemble import assemble
from engine.config import EngineConfig
from engine.errors import EngineError, ModelFault, StateFault
from engine.heap import keep_freed_memory
from engine.inbox import Inbox, Wake
from engine.reader import Reader
from engine.watchdog import Watchdog

log = logging.getLogger("engine.serve")


class Channel:
    """Frames over a connected socket. `publish` may be called from any thread; frames of one call stay together."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._incoming = connection.makefile("rb")
        self._lock = threading.Lock()

    def publish(self, events: Iterable[Event]) -> None:
        """A peer that has gone is noticed by the reading side."""
        frames = b"".join(map(encode_frame, events))
        if not frames:
            return
        try:
            with self._lock:
                self._connection.sendall(frames)
        except OSError as error:
            log.warning("events could not be delivered: %s", error)

    def receive(self) -> Command | None:
        """The next command; None when the peer has closed its end."""
        try:
            header = self._incoming.read(FRAME_HEADER.size)
            if len(header) < FRAME_HEADER.size:
                return None
            (size,) = FRAME_HEADER.unpack(header)
            if size > MAX_FRAME_BYTES:
                log.error("a frame of %d bytes was announced", size)
                return None
            payload = self._incoming.read(size)
        except OSError as error:
            log.warning("the socket failed: %s", error)
            return None
        if len(payload) < size:
            return None
        command: Command = decode_payload(payload)
        return command

    def __enter__(self) -> "Channel":
        return self

    def __exit__(self, *_: object) -> None:
        """Tells the peer that nothing more comes, and wakes the reading thread."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)


def serve(channel: Channel, config: EngineConfig) -> None:
    """Loads, announces Ready, runs until told to end. Raises ConfigRefused, other EngineErrors of files, or OSError when loading fails,
    ModelFault or StateFault when it can't go on.
    """
    assembly = assemble(
        config,
        process_id=secrets.token_hex(4),
        publish=channel.publish,
        clock=time.time,
        seeds=lambda: secrets.randbits(63),
    )
    keep_freed_memory()
    log.info("memory\n%s", assembly.plan.table())
    inbox: Inbox = SimpleQueue()
    if assembly.disk is not None:
        assembly.disk.on_done = lambda: inbox.put(Wake())
    watchdog = watch_steps(config.step_timeout_s)
    if watchdog is not None:
        assembly.loop.watch = watchdog
    Reader(channel.receive, channel.publish, assembly.text, inbox).start()
    channel.publish([assembly.ready])
    try:
        assembly.loop.run(inbox)
    finally:
        if watchdog is not None:
            watchdog.stop()


def watch_steps(limit_s: float) -> Watchdog | None:
    """A watchdog that ends this process, without anything that a step which hangs could hold up. None without a limit."""

    def end() -> None:
        faulthandler.dump_traceback()
        os._exit(ExitStatus.HUNG)

    if limit_s == 0:
        return None
    watchdog = Watchdog(limit_s, end)
    watchdog.start()
    return watchdog


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m engine.serve", description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="inherited end of a socket pair")
    parser.add_argument("--config-json", required=True, help="EngineConfig as a JSON object")
    options = parser.parse_args(arguments)
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="engine %(levelname)s %(message)s"
    )
    try:
        with socket.socket(fileno=options.fd) as connection, Channel(connection) as channel:
            serve(channel, EngineConfig.from_json(options.config_json))
    except (ModelFault, StateFault) as error:
        log.critical("the engine ends: %s", error)
        return ExitStatus.FAULT
    except (EngineError, OSError) as error:
        log.error("%s", error)
        return ExitStatus.REFUSED
    return ExitStatus.ENDED


if __name__ == "__main__":
    sys.exit(main())
