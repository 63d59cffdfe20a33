"""A backend with debug hooks: keeps prompts as tokens, dictates output, drops all state. Knows no HTTP; off unless it is asked for."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from engine.api import (
    CheckpointId,
    ContinuationId,
    Dropped,
    Generate,
    Prepare,
    Prepared,
    Prompt,
    RequestEvent,
    RequestId,
    Retention,
    Snapshot,
    Started,
)
from ninfer_proxy.backends.base import Backend, BackendStatus
from ninfer_proxy.errors import InvalidRequest

KEPT_PROMPTS = 256


class HookedBackend:
    """A Backend (see backends.base) around another. `dictation`, set in the context of a request, is what the model says to it,
    as `pieces` reads it.
    """

    def __init__(self, backend: Backend) -> None:
        self.dictation: ContextVar[str | None] = ContextVar("dictation", default=None)
        self._backend = backend
        self._prompts: dict[RequestId, tuple[int, ...]] = {}

    def prompt(self, request: RequestId) -> tuple[int, ...] | None:
        """The token ids of a latest request's prompt; None when it never started or was long ago."""
        return self._prompts.get(request)

    async def drop_all(self) -> int:
        """Forget all state in all tiers; returns how many continuations had any."""
        held = (await self._backend.snapshot()).continuations
        for each in held:
            self._backend.drop(each.continuation, "debug")
        return len(held)

    async def generate(self, request: Generate) -> AsyncGenerator[RequestEvent]:
        text = self.dictation.get()
        dictation = None if text is None else pieces(text)
        hooked = replace(request, echo_tokens=True, dictation=dictation)
        async with aclosing(self._backend.generate(hooked)) as events:
            async for event in events:
                if isinstance(event, Started):
                    self._keep(event)
                yield event

    def _keep(self, started: Started) -> None:
        self._prompts[started.request_id] = started.token_ids or ()
        if len(self._prompts) > KEPT_PROMPTS:
            del self._prompts[next(iter(self._prompts))]

    def status(self) -> BackendStatus:
        return self._backend.status()

    def cancel(self, request: RequestId) -> None:
        self._backend.cancel(request)

    def set_retention(self, entries: Sequence[Retention]) -> None:
        self._backend.set_retention(entries)

    def drop(
        self,
        continuation: ContinuationId,
        reason: str,
        checkpoints: tuple[CheckpointId, ...] | None = None,
    ) -> None:
        self._backend.drop(continuation, reason, checkpoints)

    async def prepare(self, request: Prepare) -> Prepared:
        return await self._backend.prepare(request)

    def prefetch(self, continuations: Sequence[ContinuationId]) -> None:
        self._backend.prefetch(continuations)

    async def count_tokens(self, prompt: Prompt) -> int:
        return await self._backend.count_tokens(prompt)

    async def snapshot(self) -> Snapshot:
        return await self._backend.snapshot()

    def dropped(self) -> tuple[Dropped, ...]:
        return self._backend.dropped()


def pieces(text: str) -> tuple[str | bytes | None, ...]:
    """A dictation from a JSON list of texts, {"hex": bytes} and {"fault": why}, which is None. Errors: InvalidRequest."""
    try:
        return tuple(map(_piece, json.loads(text)))
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidRequest(
            f'Output is dictated as a list of texts, {{"hex"}} and {{"fault"}}, not {text[:100]!r}.'
        ) from error


def _piece(value: Any) -> str | bytes | None:
    if isinstance(value, str):
        return value
    return None if "fault" in value else bytes.fromhex(value["hex"])
