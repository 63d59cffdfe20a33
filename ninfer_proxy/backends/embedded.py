"""The embedded engine: starts its process, carries messages, restarts it when it dies. Knows messages and exits; no conversations.

The engine process holds one end of a socket pair. If this process dies, the engine sees the socket close and ends; if the engine
dies, the requests it had are told so (Failed), and a new process is started, later and later while deaths follow each other. In a
crash loop requests are refused at once, until an engine is ready again. An engine that has been silent is asked for a sign of life, so that one that hangs is told from one that has nothing to do.
"""

import asyncio
import contextlib
import itertools
import logging
import math
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, TypeVarTuple

from engine.api import (
    Cancel,
    CheckpointId,
    Command,
    ContinuationId,
    CountTokens,
    Drop,
    Dropped,
    Event,
    Failed,
    Finished,
    Generate,
    Loading,
    Prefetch,
    Prepare,
    Prepared,
    Prompt,
    Ready,
    Rejected,
    RequestEvent,
    RequestId,
    Retention,
    SetRetention,
    Shutdown,
    Snapshot,
    TakeSnapshot,
    TokenCount,
)
from ninfer_proxy.backends.backoff import Backoff
from ninfer_proxy.backends.base import BackendStatus
from ninfer_proxy.backends.engine_process import Died, EngineProcess, describe_exit, spawn
from ninfer_proxy.errors import EngineUnavailable, InvalidRequest
from ninfer_proxy.wording import counted

log = logging.getLogger(__name__)

Ts = TypeVarTuple("Ts")

SHUTDOWN_GRACE_S = 5.0
PING_EVERY_S = 10.0
RETRY_AFTER_S = 5
ATTEMPTS = 2
_PING = RequestId("ping")


class EmbeddedBackend:
    """A Backend (see backends.base) over a supervised engine process.

    `wait_ready_s` is how long a request waits for an engine that is starting before it is refused; `ping_every_s` is the
    silence after which an engine is asked for a sign of life.
    """

    def __init__(
        self,
        engine_config: Mapping[str, Any],
        *,
        clock: Callable[[], float],
        on_ready: Callable[[Ready], None] | None = None,
        on_loading: Callable[[Loading], None] | None = None,
        on_death: Callable[[], None] | None = None,
        on_prepared: Callable[[Prepared], None] | None = None,
        wait_ready_s: float = 60.0,
        ping_every_s: float = PING_EVERY_S,
        backoff: Backoff | None = None,
    ) -> None:
        self._engine_config = engine_config
        self._clock = clock
        self._on_ready = on_ready
        self._on_loading = on_loading
        self._on_death = on_death
        self._on_prepared = on_prepared
        self._wait_ready_s = wait_ready_s
        self._ping_every_s = ping_every_s
        self._backoff = backoff or Backoff()
        self._life: EngineProcess | None = None
        self._ready: Ready | None = None
        self._ready_at: float | None = None
        self._next_start_at = 0.0
        # Set, and replaced, with each change that a request may be waiting for.
        self._changed = asyncio.Event()
        self._detail = "not started"
        self._state = "stopped"
        self._restarts = 0
        self._generation = 0
        self._dropped: list[Dropped] = []
        self._supervisor: asyncio.Task[None] | None = None
        self._ids = itertools.count(1)

    async def start(self) -> None:
        self._state, self._detail = "starting", "the engine process is starting"
        self._supervisor = asyncio.create_task(self._supervise(), name="engine-supervisor")

    async def stop(self, grace_s: float = SHUTDOWN_GRACE_S) -> None:
        """Ask the engine to end, and make it after `grace_s` seconds."""
        self._state, self._detail = "stopped", "the service is stopping"
        life, supervisor = self._life, self._supervisor
        if life is not None and life.process.returncode is None:
            with contextlib.suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(grace_s):
                    life.send(Shutdown())
                    await life.writer.drain()
                    await life.process.wait()
        if supervisor is not None:
            supervisor.cancel()
            await asyncio.gather(supervisor, return_exceptions=True)
        if life is not None:
            await self._end(life, grace_s=0)

    def kill(self) -> None:
        """End the engine process at once; for a service that ends at once itself."""
        if self._life is not None and self._life.process.returncode is None:
            self._life.process.kill()

    def status(self) -> BackendStatus:
        return BackendStatus(
            self._state,
            self._detail,
            self._ready,
            self._restarts,
            self._generation,
            silent_s=self._life.silent_s if self._life and self._state == "ready" else 0.0,
            retry_in_s=self._retry_in_s,
        )

    @property
    def _retry_in_s(self) -> float | None:
        """Until the next start, while a dead engine is left alone."""
        left = self._next_start_at - time.monotonic()
        return left if left > 0 and self._state != "stopped" else None

    async def wait_ready(self) -> Ready:
        """The running model. Errors: EngineUnavailable when none is there in time, in a crash loop at once."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._wait_ready_s):
                while self._ready_at is None and self._state != "crash_loop":
                    await self._changed.wait()
        if self._ready_at is None:
            raise EngineUnavailable(
                f"The engine is not ready: {self._detail}. Try again shortly; /health tells its state.",
                retry_after_s=math.ceil(self._retry_in_s or 0) + RETRY_AFTER_S,
            )
        assert self._ready is not None
        return self._ready

    async def generate(self, request: Generate) -> AsyncGenerator[RequestEvent]:
        """As Backend.generate. An engine that dies before it has taken the request costs nothing but the wait for the next one."""
        for _ in range(ATTEMPTS):
            taken = False
            async with contextlib.aclosing(self._generate_once(request)) as events:
                async for event in events:
                    taken = taken or not isinstance(event, Died)
                    if not isinstance(event, Died):
                        yield event
                    elif taken:
                        yield Failed(request.request_id, event.how)
            if taken:
                return
        yield Failed(request.request_id, f"the engine died {ATTEMPTS} times when given this")

    async def _generate_once(self, request: Generate) -> AsyncGenerator[RequestEvent | Died]:
        await self.wait_ready()
        life = self._require_life()
        queue: asyncio.Queue[Event | Died] = asyncio.Queue()
        life.waiting[request.request_id] = queue
        life.send(request)
        ended = False
        try:
            while not ended:
                event = await queue.get()
                assert not isinstance(
                    event, Loading | Ready | Dropped | Prepared | TokenCount | Snapshot
                )
                ended = isinstance(event, Rejected | Finished | Failed | Died)
                yield event
        finally:
            life.waiting.pop(request.request_id, None)
            if not ended and life is self._life:
                life.send(Cancel(request.request_id))

    def cancel(self, request: RequestId) -> None:
        self._send(Cancel(request))

    def set_retention(self, entries: Sequence[Retention]) -> None:
        if entries:
            self._send(SetRetention(tuple(entries)))

    def drop(
        self,
        continuation: ContinuationId,
        reason: str,
        checkpoints: tuple[CheckpointId, ...] | None = None,
    ) -> None:
        self._send(Drop(continuation, reason, checkpoints))

    async def prepare(self, request: Prepare) -> Prepared:
        await self.wait_ready()
        try:
            answer = await self._ask(request)
        except asyncio.CancelledError:
            self.cancel(request.request_id)
            raise
        assert isinstance(answer, Prepared)
        return answer

    def prefetch(self, continuations: Sequence[ContinuationId]) -> None:
        if continuations:
            self._send(Prefetch(tuple(continuations)))

    async def count_tokens(self, prompt: Prompt) -> int:
        await self.wait_ready()
        answer = await self._ask(CountTokens(self._new_id(), prompt))
        if isinstance(answer, TokenCount) and answer.error is None:
            return answer.tokens
        raise InvalidRequest(getattr(answer, "error", None) or "The prompt can't be counted.")

    async def snapshot(self) -> Snapshot:
        answer = await self._ask(TakeSnapshot(self._new_id()))
        assert isinstance(answer, Snapshot)
        return answer

    def dropped(self) -> tuple[Dropped, ...]:
        taken, self._dropped = tuple(self._dropped), []
        return taken

    def _require_life(self) -> EngineProcess:
        if self._life is None:
            raise EngineUnavailable(
                f"The engine is not running: {self._detail}.", retry_after_s=RETRY_AFTER_S
            )
        return self._life

    def _send(self, command: Command) -> None:
        """Fire and forget: an engine that is gone has nothing to be told."""
        if self._life is not None:
            self._life.send(command)

    def _new_id(self) -> RequestId:
        return RequestId(f"ask-{next(self._ids)}")

    async def _ask(self, question: CountTokens | TakeSnapshot | Prepare) -> Event:
        """Errors: EngineUnavailable when the engine ends before it answers."""
        life, request_id = self._require_life(), question.request_id
        queue: asyncio.Queue[Event | Died] = asyncio.Queue()
        life.waiting[request_id] = queue
        try:
            life.send(question)
            answer = await queue.get()
            if isinstance(answer, Died):
                raise EngineUnavailable(f"Not answered: {answer.how}.", retry_after_s=RETRY_AFTER_S)
            return answer
        finally:
            life.waiting.pop(request_id, None)

    async def _supervise(self) -> None:
        """Keep one engine running until the service stops; wait longer after each quick death."""
        while self._state != "stopped":
            how, served_s = await self._live()
            if self._state == "stopped":
                return
            self._mourn(how, self._backoff.died(served_s))
            await asyncio.sleep(self._next_start_at - time.monotonic())
            if self._state == "restarting":
                self._detail = "the engine process is starting again"

    def _mourn(self, how: str, backoff_s: float) -> None:
        """Tell that the engine died and when the next one starts. In a crash loop that stays the word until one is ready."""
        self._restarts += 1
        self._next_start_at = time.monotonic() + backoff_s
        self._state, self._detail = "restarting", how
        if self._backoff.looping:
            deaths = counted(self._backoff.deaths, "time")
            self._state = "crash_loop"
            self._detail = f"it died {deaths} in a row, at last so: {how}"
        log.error("%s; next start in %.1f s", self._detail, backoff_s)
        tell(self._on_death)
        self._change()

    def _change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _live(self) -> tuple[str, float]:
        """One life of the engine, from its start to its burial; returns how it ended, and for how many seconds it was ready."""
        # Told apart from the processes of earlier services on the same data too.
        generation = max(self._generation + 1, int(self._clock() * 1000))
        try:
            life = await spawn(self._engine_config)
        except OSError as error:
            # No process, memory or file handle to be had just now: that passes.
            return f"the engine process could not be started ({error})", 0.0
        self._life, self._generation = life, generation
        pinging = asyncio.create_task(self._ping(life), name="engine-ping")
        try:
            await self._carry(life)
        except Exception:
            log.exception("what the engine process sends can't be read; it is replaced")
        finally:
            pinging.cancel()
        served_s = 0.0 if self._ready_at is None else time.monotonic() - self._ready_at
        return f"the engine process ended ({describe_exit(await self._end(life))})", served_s

    async def _carry(self, life: EngineProcess) -> None:
        """Hand each event to who waits for it, until the engine closes its end."""
        while (event := await life.receive()) is not None:
            life.hear()
            if isinstance(event, Ready):
                self._announce(event)
            elif isinstance(event, Loading):
                if self._state != "crash_loop":
                    self._detail = event.stage
                tell(self._on_loading, event)
            elif isinstance(event, Dropped):
                self._dropped.append(event)
            else:
                if isinstance(event, Prepared):
                    tell(self._on_prepared, event)
                if (queue := life.waiting.get(event.request_id)) is not None:
                    queue.put_nowait(event)

    async def _ping(self, life: EngineProcess) -> None:
        """Ask for a snapshot after each silence: the engine's loop answers it between two steps. One question at a time."""
        while True:
            await asyncio.sleep(self._ping_every_s)
            if self._state == "ready" and life.silent_s >= self._ping_every_s:
                life.ask_once(TakeSnapshot(_PING))

    def _announce(self, ready: Ready) -> None:
        if self._state == "stopped":
            return
        self._ready = ready
        self._state, self._detail = "ready", f"{ready.model} on {ready.device}"
        self._ready_at = time.monotonic()
        self._change()
        tell(self._on_ready, ready)

    async def _end(self, life: EngineProcess, grace_s: float = SHUTDOWN_GRACE_S) -> int:
        """Bury one life: fail what it still owed, make sure that the process is gone."""
        self._ready_at = None
        if self._life is life:
            self._life = None
        life.writer.close()
        if life.process.returncode is None:
            try:
                async with asyncio.timeout(grace_s):
                    await life.process.wait()
            except TimeoutError:
                life.process.kill()
        code = await life.process.wait()
        for queue in life.waiting.values():
            queue.put_nowait(Died(f"the engine process ended ({describe_exit(code)})"))
        return code


def tell(listener: Callable[[*Ts], object] | None, *what: *Ts) -> None:
    """Call a listener, if there is one. Its faults are its own: a terminal that has gone mustn't end the engine's supervision."""
    if listener is None:
        return
    try:
        listener(*what)
    except Exception:
        log.exception("a listener to the engine failed")
