"""Idle work: has the engine compute a prompt as the next request will begin, where that leaves out what this one had. Decides nothing.

this turn      … ask note │ answer            the state behind the answer is of no use: it has seen the note
computed       … ask        answer            while nothing is asked for; the next turn is a pure append
"""

import asyncio
import logging
from dataclasses import replace

from engine.api import Generate, Message, Prepare, RequestId
from ninfer_proxy.backends.base import Backend
from ninfer_proxy.errors import EngineUnavailable
from ninfer_proxy.habits import Habits
from ninfer_proxy.planning.ahead import leaving

log = logging.getLogger(__name__)


class Ahead:
    """Mutable; one for each app. The engine drops what a request of the same conversation overtakes."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._asked: set[asyncio.Task[None]] = set()

    def prepare(self, request: Generate, answer: Message, habits: Habits) -> None:
        """After `request` was answered and the user is to go on. Returns at once."""
        said = request.prompt.messages
        gone = leaving([message.role for message in said], habits)
        if not gone:
            return
        kept = tuple(message for at, message in enumerate(said) if at not in gone)
        prepare = Prepare(
            request_id=RequestId(f"{request.request_id}.next"),
            tenant=request.tenant,
            continuation=request.continuation,
            prompt=replace(request.prompt, messages=(*kept, answer)),
            retention=request.retention,
            ladder_tokens=request.ladder_tokens,
        )
        task = asyncio.create_task(self._ask(prepare), name=f"ahead {prepare.request_id}")
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)

    async def _ask(self, prepare: Prepare) -> None:
        try:
            await self._backend.prepare(prepare)
        except EngineUnavailable as error:
            log.info("nothing is computed ahead: %s", error.message)
