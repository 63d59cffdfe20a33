"""A TurnService without identity, planning or store: runs turns on the scripted backend and remembers what became of them."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette

from engine.api import (
    ContinuationId,
    Delta,
    Failed,
    Finished,
    FinishReason,
    Generate,
    Message,
    Prompt,
    Rejected,
    RequestId,
    Retention,
    Started,
)
from ninfer_proxy.backends.scripted import Script, ScriptedBackend, echo, prompt_tokens
from ninfer_proxy.errors import ContextLengthExceeded, EngineFault, Overloaded, ProxyError
from ninfer_proxy.events import Broken, Completed, TurnEvent, Usage
from ninfer_proxy.http.errors import boundary, error_handlers
from ninfer_proxy.http.routes import routes
from ninfer_proxy.http.service import RunningTurn
from ninfer_proxy.http.settings import HttpSettings
from ninfer_proxy.http.wire_common import WireDefaults
from ninfer_proxy.metrics import Metrics
from ninfer_proxy.output import OutputBuilder
from ninfer_proxy.response_object import response_object
from ninfer_proxy.types import (
    ConversationId,
    Decision,
    MatchKind,
    MessageItem,
    ModelInfo,
    Reason,
    Turn,
)

SETTINGS = HttpSettings(WireDefaults("demo"), tenant_secret=b"for tests")


@dataclass(frozen=True, slots=True)
class Page:
    data: tuple[Mapping[str, Any], ...]
    has_more: bool


class FakeTurn:
    """One running turn. `closed` is set when the HTTP side lets go of it."""

    def __init__(self, turn: Turn, number: int, events: AsyncGenerator[TurnEvent, None]) -> None:
        self.turn = turn
        self.response_id = f"resp_{number}"
        self.created_at = 1000
        self.decision_header = "new_conversation; slot=0"
        self.opening_body = response_object(
            turn, response_id=self.response_id, created_at=1000, status="in_progress"
        )
        self.closed = asyncio.Event()
        self.cancelled = False
        self._events = events

    def events(self) -> AsyncIterator[TurnEvent]:
        return self._watch()

    async def _watch(self) -> AsyncIterator[TurnEvent]:
        ended = False
        async with aclosing(self._events) as events:
            try:
                async for event in events:
                    ended = isinstance(event, Completed | Broken)
                    yield event
            except (asyncio.CancelledError, GeneratorExit):
                self.cancelled = not ended
                raise

    async def close(self) -> None:
        self.closed.set()


class FakeTurns:
    """The service. `begin_s` is how long a turn waits before it begins; `error` is raised instead; `crash` breaks the stream."""

    def __init__(self, script: Script = echo) -> None:
        self.backend = ScriptedBackend(script)
        self.turns: list[FakeTurn] = []
        self.asked: list[Turn] = []
        self.begin_s = 0.0
        self.begin_cancelled = asyncio.Event()
        self.error: Exception | None = None
        self.crash: Exception | None = None
        self.stored: dict[tuple[str, str], Mapping[str, Any]] = {}
        self.healthy = True
        self._numbers = itertools.count(1)
        self._ids = itertools.count(1)

    async def begin(self, turn: Turn) -> RunningTurn:
        self.asked.append(turn)
        if self.error:
            raise self.error
        try:
            await asyncio.sleep(self.begin_s)
        except asyncio.CancelledError:
            self.begin_cancelled.set()
            raise
        number = next(self._numbers)
        running = FakeTurn(turn, number, self._events(turn, number))
        self.turns.append(running)
        return running

    async def _events(self, turn: Turn, number: int) -> AsyncGenerator[TurnEvent, None]:
        builder = OutputBuilder(
            lambda prefix: f"{prefix}_{next(self._ids)}",
            encrypted_reasoning="reasoning.encrypted_content" in turn.include,
        )
        started: Started | None = None
        request = generate_for(turn, f"r{number}")
        async with aclosing(self.backend.generate(request)) as events:  # type: ignore[type-var]
            async for event in events:
                match event:
                    case Rejected():
                        yield self._broken(turn, number, ContextLengthExceeded(event.message))
                    case Started():
                        started = event
                    case Delta():
                        for made in builder.add(event):
                            yield made
                        if self.crash:
                            raise self.crash
                    case Failed():
                        yield self._broken(turn, number, EngineFault(event.message))
                    case Finished():
                        assert started is not None
                        for made in builder.finish(cut=event.reason is FinishReason.LENGTH):
                            yield made
                        yield self._completed(turn, number, started, event, builder)

    def _broken(self, turn: Turn, number: int, error: ProxyError) -> Broken:
        body = response_object(
            turn, response_id=f"resp_{number}", created_at=1000, status="failed", error=error
        )
        return Broken(error, body)

    def _completed(
        self, turn: Turn, number: int, started: Started, end: Finished, builder: OutputBuilder
    ) -> Completed:
        cut = end.reason is FinishReason.LENGTH
        status, reason = ("incomplete", "max_output_tokens") if cut else ("completed", None)
        usage = Usage(
            started.prompt_tokens, started.reused_tokens, end.output_tokens, end.reasoning_tokens
        )
        decision = Decision(
            Reason.NEW_CONVERSATION,
            "",
            0,
            ConversationId("c"),
            MatchKind.NEW,
            (),
            started.prompt_tokens,
            started.reused_tokens,
            None,
            None,
        )
        body = response_object(
            turn,
            response_id=f"resp_{number}",
            created_at=1000,
            status=status,
            output=builder.output,
            usage=usage,
            completed_at=1001,
            incomplete_reason=reason,
            decision=decision,
        )
        if turn.store:
            self.stored[turn.tenant, f"resp_{number}"] = body
        return Completed(status, reason, builder.output, usage, decision, body)

    async def count_tokens(self, turn: Turn) -> int:
        self.asked.append(turn)
        return len(prompt_tokens(generate_for(turn, "count").prompt)[0])

    async def get_response(self, tenant: str, response_id: str) -> Mapping[str, Any] | None:
        return self.stored.get((tenant, response_id))

    async def delete_response(self, tenant: str, response_id: str) -> bool:
        return self.stored.pop((tenant, response_id), None) is not None

    async def input_items(
        self, tenant: str, response_id: str, after: str | None, limit: int, order: str
    ) -> Page | None:
        if (tenant, response_id) not in self.stored:
            return None
        items = [{"id": f"{order}_{n}", "type": "message", "after": after} for n in range(limit)]
        return Page(tuple(items), has_more=True)

    async def health(self) -> Mapping[str, Any]:
        return {"status": "ok" if self.healthy else "starting", "engine": {"state": "x"}}

    def model(self) -> ModelInfo:
        return ModelInfo("demo", 32768)


def generate_for(turn: Turn, request_id: str) -> Generate:
    messages = tuple(
        Message(item.role, item.text) for item in turn.items if isinstance(item, MessageItem)
    )
    continuation = ContinuationId("k")
    return Generate(
        RequestId(request_id),
        turn.tenant,
        continuation,
        Prompt(messages, turn.tools),
        Retention(continuation, 0, 0.0),
        max_tokens=turn.max_output_tokens,
    )


def build(
    service: FakeTurns, settings: HttpSettings = SETTINGS, metrics: Metrics | None = None
) -> Starlette:
    """An app of the HTTP side alone."""
    metrics = metrics or Metrics()
    return Starlette(
        routes=routes(service, settings, metrics, clock=lambda: 1000.0),
        middleware=[boundary(metrics)],
        exception_handlers=error_handlers(metrics),
    )


def overloaded() -> Overloaded:
    return Overloaded("The queue is full.", retry_after_s=2)
