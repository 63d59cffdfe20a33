"""The whole service as a process of its own, with the scripted backend in the engine's place. For tests that send signals.

    python scripted_service.py DATA_DIR SHUTDOWN_S [WHAT_HANGS …]

What hangs may be `engine`, which then neither ends what is cancelled nor itself, and `store`, which then doesn't close.
"""

import asyncio
import logging
import sys
import time
from typing import Any

from engine.api import Generate, RequestId
from ninfer_proxy import service
from ninfer_proxy.backends.scripted import Performance, ScriptedBackend, text
from ninfer_proxy.config import load
from ninfer_proxy.store.store import Store

DATA_DIR, SHUTDOWN_S, *HANGING = sys.argv[1:]


def script(request: Generate) -> Performance:
    """Answers "hang" with one word and then silence."""
    hangs = request.prompt.messages[-1].text == "hang"
    return Performance((text("one "), text("two")), hang_after=1 if hangs else None)


class Engine(ScriptedBackend):
    def __init__(self, *_: object, on_ready: Any, **__: object) -> None:
        super().__init__(script)
        self._on_ready = on_ready

    async def start(self) -> None:
        self._on_ready(self.status().ready)

    def cancel(self, request: RequestId) -> None:
        if "engine" not in HANGING:
            super().cancel(request)

    async def stop(self, grace_s: float) -> None:
        if "engine" in HANGING:
            await asyncio.Event().wait()

    def kill(self) -> None:
        logging.warning("the engine was killed")


async def never_closed(_: Store) -> None:
    await asyncio.to_thread(time.sleep, 600)


if __name__ == "__main__":
    service.EmbeddedBackend = Engine  # type: ignore[assignment,misc]
    service.SHUTDOWN_S = float(SHUTDOWN_S)
    if "store" in HANGING:
        Store.close = never_closed  # type: ignore[method-assign]
    service.serve(load(None, {}, {"server.port": 0, "server.data_dir": DATA_DIR}))
