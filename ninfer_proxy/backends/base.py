"""The seam between the proxy and whatever generates tokens. Knows engine values; doesn't know conversations."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.api import (
    CheckpointId,
    ContinuationId,
    Dropped,
    Generate,
    Prepare,
    Prepared,
    Prompt,
    Ready,
    RequestEvent,
    RequestId,
    Retention,
    Snapshot,
)


@dataclass(frozen=True, slots=True)
class BackendStatus:
    """What `/health` tells. `state`: starting, ready, restarting, crash_loop, stopped. `ready` is the last announcement of a model;
    `restarts` counts engine deaths since start; `generation` rises with each engine process. `silent_s` is how long a ready
    engine, which is asked now and then, has given no sign of life; `retry_in_s` the time to the next start while a dead one is left alone.
    """

    state: str
    detail: str
    ready: Ready | None
    restarts: int
    generation: int
    silent_s: float = 0.0
    retry_in_s: float | None = None


class Backend(Protocol):
    """Anything that can generate. Errors: EngineUnavailable when it can't take a request now."""

    def status(self) -> BackendStatus: ...

    def generate(self, request: Generate) -> AsyncGenerator[RequestEvent]:
        """Events of one request, ending with Rejected, Finished or Failed. Closing the iterator early cancels it."""
        ...

    def cancel(self, request: RequestId) -> None:
        """Ask for an early end; the iterator then ends with Finished(CANCELLED)."""
        ...

    def set_retention(self, entries: Sequence[Retention]) -> None: ...

    def drop(
        self,
        continuation: ContinuationId,
        reason: str,
        checkpoints: tuple[CheckpointId, ...] | None = None,
    ) -> None: ...

    async def prepare(self, request: Prepare) -> Prepared:
        """Compute a prompt ahead while nothing is asked for; returns when that has ended, however it did. Cancelling the wait cancels it.
        Errors: EngineUnavailable when there's no engine, or it ends before.
        """
        ...

    def prefetch(self, continuations: Sequence[ContinuationId]) -> None:
        """Hint that these will soon be asked for, the soonest first."""
        ...

    async def count_tokens(self, prompt: Prompt) -> int:
        """Prompt tokens including the generation opener. Errors: InvalidRequest for a prompt that can't be rendered."""
        ...

    async def snapshot(self) -> Snapshot: ...

    def dropped(self) -> tuple[Dropped, ...]:
        """Checkpoints lost since the last call; empties the list."""
        ...
