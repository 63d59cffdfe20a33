"""A turn that runs: engine events in, turn events out, stored before the client hears of the end. Knows no wire format.

The turn is a task of its own, so that it is settled properly even when its client has gone.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any

from engine.api import (
    Delta,
    Failed,
    Finished,
    FinishReason,
    Generate,
    Progress,
    RejectCode,
    Rejected,
    RequestEvent,
    Started,
)
from ninfer_proxy.backends.base import Backend
from ninfer_proxy.errors import (
    ContextLengthExceeded,
    EngineFault,
    EngineUnavailable,
    InvalidRequest,
    MemoryPinned,
    Overloaded,
    ProxyError,
)
from ninfer_proxy.events import Broken, Completed, Progressed, TurnEvent, Usage
from ninfer_proxy.habits import Seen
from ninfer_proxy.output import OutputBuilder
from ninfer_proxy.planning.explain import settled
from ninfer_proxy.response_object import response_object
from ninfer_proxy.turn.outcome import Outcome
from ninfer_proxy.turn.recognised import Recognised
from ninfer_proxy.turn.settle import Settler
from ninfer_proxy.types import Decision, TurnPlan

log = logging.getLogger(__name__)

STATUS = {
    FinishReason.STOP: "completed",
    FinishReason.TOOL_CALLS: "completed",
    FinishReason.LENGTH: "incomplete",
    FinishReason.CANCELLED: "cancelled",
}


class RunningTurn:
    """One accepted turn. Its task starts with it; `events` is asked for once."""

    def __init__(
        self,
        recognised: Recognised,
        plan: TurnPlan,
        request: Generate,
        backend: Backend,
        settler: Settler,
        new_id: Callable[[str], str],
        clock: Callable[[], float],
    ) -> None:
        self._recognised = recognised
        self._plan = plan
        self._request = request
        self._backend = backend
        self._settler = settler
        self._clock = clock
        self._created_at = clock()
        self._builder = OutputBuilder(
            new_id,
            encrypted_reasoning="reasoning.encrypted_content" in recognised.turn.include,
        )
        self._events: asyncio.Queue[TurnEvent] = asyncio.Queue()
        self._accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._handed_over = False
        self._has_output = False
        self._started: Started | None = None
        self._decision: Decision | None = None
        self._seen: Seen = {}
        self._task = asyncio.create_task(self._run(), name=f"turn {request.request_id}")

    @property
    def response_id(self) -> str:
        return self._request.request_id

    @property
    def created_at(self) -> int:
        return int(self._created_at)

    @property
    def decision_header(self) -> str:
        """The decision, or what is known of it while the engine hasn't answered."""
        if self._decision is not None:
            return self._decision.header
        plan, match = self._plan, self._recognised.match
        return f"queued; slot={plan.slot}; conversation={plan.conversation}; match={match.kind}"

    @property
    def opening_body(self) -> Mapping[str, Any]:
        return self._body("in_progress")

    async def wait_decided(self, patience_s: float) -> None:
        """Wait until the engine has answered, but no longer than that; a turn that still queues goes on as a stream.

        Errors: ProxyError when the turn was refused or failed meanwhile.
        """
        try:
            await asyncio.wait({self._accepted}, timeout=patience_s)
        except asyncio.CancelledError:
            # Whatever the turn still comes to, there is nobody left to be told of it here.
            self._handed_over = True
            await self.close()
            raise
        self._handed_over = True
        # A refusal that came in the very moment patience ended is told here too.
        if self._accepted.done():
            self._accepted.result()

    async def events(self) -> AsyncIterator[TurnEvent]:
        """Ends with Completed or Broken. Closing it early cancels the generation."""
        try:
            while True:
                event = await self._events.get()
                yield event
                if isinstance(event, Completed | Broken):
                    return
        finally:
            await self.close()

    async def close(self) -> None:
        """Cancel the generation unless it has ended. Returns at once; the turn's task settles what there is."""
        if self._task.done():
            return
        if self._started is None:
            self._task.cancel()
        else:
            self._backend.cancel(self._request.request_id)

    async def _run(self) -> None:
        try:
            with self._settler.metrics.turn_in_flight():
                async with aclosing(self._backend.generate(self._request)) as events:
                    async for event in events:
                        await self._take(event)
        except ProxyError as error:
            self._break(error)
        except Exception:
            log.exception("turn %s failed", self._request.request_id)
            self._break(EngineFault("The proxy failed while it ran this request; see its log."))
        finally:
            await self._settler.release(self._recognised)
            if not self._accepted.done():
                self._accepted.cancel()

    async def _take(self, event: RequestEvent) -> None:
        match event:
            case Started():
                self._started = event
                self._decision, self._seen = await self._settler.decide(
                    self._recognised, self._plan, event
                )
                self._accept()
            case Progress():
                assert self._started is not None
                self._put(Progressed(event.prompt_tokens_done, self._started.prompt_tokens))
            case Delta():
                self._note_first()
                self._put(*self._builder.add(event))
            case Finished():
                await self._finish(event)
            case Rejected():
                raise refusal(event)
            case Failed():
                raise EngineFault(f"The engine failed on this request: {event.message}.")

    def _note_first(self) -> None:
        if not self._has_output:
            self._has_output = True
            waited = self._clock() - self._recognised.turn.received_at
            self._settler.metrics.first_token(waited)

    async def _finish(self, finished: Finished) -> None:
        status = STATUS[finished.reason]
        self._put(*self._builder.finish(cut=status != "completed"))
        assert self._started is not None
        assert self._decision is not None
        self._decision = settled(self._decision, finished.reused_tokens)
        usage = Usage(
            self._started.prompt_tokens,
            self._decision.reused_tokens,
            finished.output_tokens,
            finished.reasoning_tokens,
        )
        incomplete_reason = "max_output_tokens" if status == "incomplete" else None
        completed_at = self._clock()
        body = self._body(
            status,
            output=self._builder.output,
            usage=usage,
            completed_at=int(completed_at),
            incomplete_reason=incomplete_reason,
            decision=self._decision,
        )
        outcome = Outcome(
            self.response_id, self._created_at, completed_at, status,
            self._builder.output, usage, self._decision, body, self._started, finished,
            self._seen,
        )  # fmt: skip
        await self._settler.commit(self._recognised, self._plan, outcome)
        self._put(
            Completed(status, incomplete_reason, self._builder.output, usage, self._decision, body)
        )
        await self._settler.look_ahead(self._recognised, self._request, outcome)

    def _break(self, error: ProxyError) -> None:
        """Tell of a fault: as an error of `begin` while that waits, else as the stream's end."""
        if not self._handed_over and not self._accepted.done():
            self._accepted.set_exception(error)
            return
        self._settler.metrics.turn_broken()
        self._put(*self._builder.finish(cut=True))
        self._put(Broken(error, self._body("failed", output=self._builder.output, error=error)))

    def _accept(self) -> None:
        if not self._accepted.done():
            self._accepted.set_result(None)

    def _put(self, *events: TurnEvent) -> None:
        for event in events:
            self._events.put_nowait(event)

    def _body(self, status: str, **parts: Any) -> dict[str, Any]:
        return response_object(
            self._recognised.sent,
            response_id=self.response_id,
            created_at=self.created_at,
            status=status,
            **parts,
        )


def refusal(rejected: Rejected) -> ProxyError:
    """The error a client is told for an engine's refusal."""
    if rejected.code is RejectCode.CONTEXT_LENGTH_EXCEEDED:
        return ContextLengthExceeded(rejected.message, param="input")
    if rejected.code is RejectCode.QUEUE_FULL:
        return Overloaded(rejected.message, retry_after_s=5)
    if rejected.code is RejectCode.MEMORY_PINNED:
        return MemoryPinned(rejected.message, retry_after_s=30)
    if rejected.code is RejectCode.INVALID_PROMPT:
        return InvalidRequest(rejected.message, param="input")
    return EngineUnavailable(rejected.message, retry_after_s=5)
