"""A backend that plays what it is told, for tests and demos without torch. Its tokens are words; it resumes from checkpoints only, as the
engine does, so that plans made against it mean something. Knows no conversations.
"""

import asyncio
import json
from array import array
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from zlib import crc32

from engine.api import (
    AnchorKind,
    CheckpointId,
    CheckpointInfo,
    ContinuationId,
    ContinuationInfo,
    Delta,
    DeltaKind,
    Dropped,
    Failed,
    Finished,
    FinishReason,
    Generate,
    LedgerEntry,
    Message,
    Prepare,
    Prepared,
    PrepareOutcome,
    Prompt,
    Ready,
    RejectCode,
    Rejected,
    RequestEvent,
    RequestId,
    ResumeReason,
    Retention,
    Snapshot,
    Started,
    TenantKey,
    Tier,
    TierUsage,
)
from ninfer_proxy.backends.base import BackendStatus
from ninfer_proxy.wording import counted

TOKENIZER = "words"
BYTES_PER_TOKEN = 64
_NOBODY = RequestId("")
_END = crc32(b"<end>")

Tokens = tuple[int, ...]


def reasoning(text: str) -> Delta:
    return Delta(_NOBODY, DeltaKind.REASONING, text)


def text(text: str) -> Delta:
    return Delta(_NOBODY, DeltaKind.TEXT, text)


def call(name: str, arguments: str) -> Delta:
    """`arguments` is JSON text."""
    return Delta(_NOBODY, DeltaKind.TOOL_CALL, call=(name, arguments))


@dataclass(frozen=True, slots=True)
class Performance:
    """How one request goes. `queue_s` passes before it starts, `pause_s` before each delta. With `fail_after` N the engine fails
    after N deltas, with `hang_after` N it goes silent until it is cancelled; `reject` refuses the request at once. `again_tokens`
    of the prompt are computed once more on the way, as after a preemption.
    """

    deltas: tuple[Delta, ...] = ()
    queue_s: float = 0.0
    pause_s: float = 0.0
    fail_after: int | None = None
    hang_after: int | None = None
    again_tokens: int = 0
    reject: RejectCode | None = None


Script = Callable[[Generate], Performance]


def echo(request: Generate) -> Performance:
    """Answers with what the last message said."""
    words = request.prompt.messages[-1].text if request.prompt.messages else ""
    return Performance((text("You said:"), text(f" {words}")))


@dataclass(frozen=True, slots=True)
class _Saved:
    info: CheckpointInfo
    tenant: TenantKey
    tokens: Tokens


@dataclass(slots=True)
class _Running:
    request: Generate
    tokens: Tokens
    borders: tuple[int, ...]
    cancel: asyncio.Event = field(default_factory=asyncio.Event)
    deltas: list[Delta] = field(default_factory=list)
    output: list[int] = field(default_factory=list)
    reused_tokens: int = 0

    @property
    def full(self) -> bool:
        limit = self.request.max_tokens
        return limit is not None and len(self.output) >= limit


class ScriptedBackend:
    """Mutable. `requests`, `cancelled`, `prepared` and `prefetched` say what was asked of it; `state` may be set to what `/health` should see."""

    def __init__(self, script: Script = echo, *, context_tokens: int = 32768) -> None:
        self.requests: list[Generate] = []
        self.cancelled: list[RequestId] = []
        self.prepared: list[Prepare] = []
        self.prefetched: list[ContinuationId] = []
        self.state = "ready"
        self.weights_id = "scripted"
        self._script = script
        self._context_tokens = context_tokens
        self._running: dict[RequestId, _Running] = {}
        self._saved: dict[ContinuationId, list[_Saved]] = {}
        self._dropped: list[Dropped] = []
        self._made = 0

    def status(self) -> BackendStatus:
        ready = Ready("scripted", self.weights_id, TOKENIZER, self._context_tokens, 8, "none")
        return BackendStatus(self.state, "", ready, restarts=0, generation=1)

    async def generate(self, request: Generate) -> AsyncGenerator[RequestEvent]:
        performance = self._script(request)
        self.requests.append(request)
        tokens, borders = prompt_tokens(request.prompt)
        rejected = self._refusal(request, performance, len(tokens))
        if rejected is not None:
            yield rejected
            return
        running = self._running[request.request_id] = _Running(request, tokens, borders)
        try:
            async with aclosing(self._perform(running, performance)) as events:
                async for event in events:
                    yield event
        except (GeneratorExit, asyncio.CancelledError):
            self.cancelled.append(request.request_id)
            raise
        finally:
            del self._running[request.request_id]

    def _refusal(self, request: Generate, performance: Performance, tokens: int) -> Rejected | None:
        if performance.reject is not None:
            return Rejected(request.request_id, performance.reject, "The script says no.")
        if tokens < self._context_tokens:
            return None
        code = RejectCode.CONTEXT_LENGTH_EXCEEDED
        message = f"{counted(tokens, 'token')} don't fit in {self._context_tokens:,}."
        return Rejected(request.request_id, code, message, tokens, self._context_tokens)

    async def _perform(
        self, running: _Running, performance: Performance
    ) -> AsyncGenerator[RequestEvent, None]:
        request_id = running.request.request_id
        if await self._waited(running, performance.queue_s):
            yield self._finished(running, FinishReason.CANCELLED)
            return
        started = self._started(running)
        running.reused_tokens = max(started.reused_tokens - performance.again_tokens, 0)
        yield started
        for index, delta in enumerate(performance.deltas):
            if performance.fail_after == index:
                break
            silence = None if performance.hang_after == index else performance.pause_s
            if await self._waited(running, silence):
                yield self._finished(running, FinishReason.CANCELLED)
                return
            words = delta_tokens(delta)
            running.deltas.append(delta)
            running.output.extend(words)
            yield replace(delta, request_id=request_id, tokens=len(words))
            if running.full:
                yield self._finished(running, FinishReason.LENGTH)
                return
        if performance.fail_after is not None:
            yield Failed(request_id, "The script says so.")
            return
        calls = any(delta.call for delta in running.deltas)
        yield self._finished(running, FinishReason.TOOL_CALLS if calls else FinishReason.STOP)

    async def _waited(self, running: _Running, seconds: float | None) -> bool:
        """Wait (None: for ever). True when the request was cancelled meanwhile."""
        if seconds == 0:
            await asyncio.sleep(0)
            return running.cancel.is_set()
        try:
            await asyncio.wait_for(running.cancel.wait(), seconds)
        except TimeoutError:
            return False
        return True

    def _started(self, running: _Running) -> Started:
        """Admission: the longest saved line that the prompt begins with; at least one token is left to compute."""
        request, tokens = running.request, running.tokens
        saved = self._saved_by(request.tenant)
        best = longest(saved, tokens[:-1])
        matched = max((_common(entry.tokens, tokens) for entry in saved), default=0)
        self._save_anchors(request, tokens, running.borders)
        reason = ResumeReason.RESUMED if best else ResumeReason.NO_SHARED_CHECKPOINT
        return Started(
            request_id=request.request_id,
            prompt_tokens=len(tokens),
            reused_tokens=len(best.tokens) if best else 0,
            matched_tokens=matched,
            reason=reason if saved else ResumeReason.NOTHING_STORED,
            source=best.info if best else None,
            borders=running.borders,
            token_ids=tokens if request.echo_tokens else None,
        )

    def _saved_by(self, tenant: TenantKey) -> list[_Saved]:
        every = (entry for entries in self._saved.values() for entry in entries)
        return [entry for entry in every if entry.tenant == tenant]

    def _save_anchors(
        self, request: Generate | Prepare, tokens: Tokens, borders: tuple[int, ...]
    ) -> None:
        for anchor in request.anchors:
            position = borders[anchor.messages] - anchor.back
            if position > 0:
                self._save(request, anchor.kind, tokens[:position])

    def _save(self, request: Generate | Prepare, kind: AnchorKind, tokens: Tokens) -> None:
        entries = self._saved.setdefault(request.continuation, [])
        if any(entry.tokens == tokens for entry in entries):
            return
        self._made += 1
        size = BYTES_PER_TOKEN * len(tokens)
        name = CheckpointId(f"cp{self._made}")
        info = CheckpointInfo(name, request.continuation, kind, len(tokens), Tier.DEVICE, size)
        entries.append(_Saved(info, request.tenant, tokens))

    def _finished(self, running: _Running, reason: FinishReason) -> Finished:
        request, output = running.request, (*running.output, _END)
        if request.save_tip:
            self._save(request, AnchorKind.TIP, running.tokens + output)
        thoughts = [d for d in running.deltas if d.kind is DeltaKind.REASONING]
        thought_tokens = sum(len(delta_tokens(delta)) for delta in thoughts)
        ledger = LedgerEntry(array("I", output).tobytes(), thought_tokens, TOKENIZER)
        saved = self._saved.get(request.continuation, ())
        return Finished(
            request.request_id,
            reason,
            output_tokens=len(output),
            reasoning_tokens=thought_tokens,
            reused_tokens=running.reused_tokens,
            ledger=ledger,
            checkpoints=tuple(entry.info for entry in saved),
        )

    def cancel(self, request: RequestId) -> None:
        if running := self._running.get(request):
            self.cancelled.append(request)
            running.cancel.set()

    def set_retention(self, entries: Sequence[Retention]) -> None:
        """Nothing to do: a script has all the memory it wants."""

    def drop(
        self,
        continuation: ContinuationId,
        reason: str,
        checkpoints: tuple[CheckpointId, ...] | None = None,
    ) -> None:
        entries = self._saved.pop(continuation, [])
        kept = [
            entry
            for entry in entries
            if checkpoints is not None and entry.info.checkpoint not in checkpoints
        ]
        if kept:
            self._saved[continuation] = kept
        gone = tuple(entry.info for entry in entries if entry not in kept)
        if gone:
            self._dropped.append(Dropped(gone, reason))

    async def prepare(self, request: Prepare) -> Prepared:
        """Done at once: a script is idle whenever it's asked."""
        self.prepared.append(request)
        tokens, borders = prompt_tokens(request.prompt)
        tokens = tokens[: borders[-1]]
        best = longest(self._saved_by(request.tenant), tokens)
        self._save_anchors(request, tokens, borders)
        self._save(request, AnchorKind.PROMPT_END, tokens)
        return Prepared(
            request.request_id,
            PrepareOutcome.DONE,
            prompt_tokens=len(tokens),
            computed_tokens=len(tokens) - (len(best.tokens) if best else 0),
            checkpoints=tuple(entry.info for entry in self._saved[request.continuation]),
        )

    def prefetch(self, continuations: Sequence[ContinuationId]) -> None:
        self.prefetched.extend(continuations)

    async def count_tokens(self, prompt: Prompt) -> int:
        return len(prompt_tokens(prompt)[0])

    async def snapshot(self) -> Snapshot:
        continuations = tuple(
            ContinuationInfo(
                name,
                entries[0].tenant,
                tuple(entry.info for entry in entries),
                sum(entry.info.bytes for entry in entries),
            )
            for name, entries in self._saved.items()
        )
        used = sum(continuation.bytes for continuation in continuations)
        tiers = (TierUsage(Tier.DEVICE, used, 1 << 30),)
        return Snapshot(_NOBODY, (), 0, continuations, tiers)

    def dropped(self) -> tuple[Dropped, ...]:
        dropped, self._dropped = tuple(self._dropped), []
        return dropped


def prompt_tokens(prompt: Prompt) -> tuple[Tokens, tuple[int, ...]]:
    """The prompt's tokens with the generation opener, and the borders behind each number of messages."""
    tokens = [
        token for tool in prompt.tools for token in _words(json.dumps([tool.name, tool.parameters]))
    ]
    borders = [len(tokens)]
    for message in prompt.messages:
        tokens += _message_tokens(message)
        borders.append(len(tokens))
    return (*tokens, *_words("assistant")), tuple(borders)


def _message_tokens(message: Message) -> Iterator[int]:
    yield from _words(message.role)
    if message.ledger is not None and message.ledger.tokenizer_id == TOKENIZER:
        yield from array("I", message.ledger.tokens)
        return
    yield from _words(message.reasoning or "")
    yield from _words(message.text)
    for tool_call in message.tool_calls:
        yield from _words(f"{tool_call.name} {tool_call.arguments}")
    yield _END


def longest(saved: Sequence[_Saved], tokens: Tokens) -> _Saved | None:
    """The longest of the saved lines that `tokens` begin with."""
    usable = [entry for entry in saved if tokens[: len(entry.tokens)] == entry.tokens]
    return max(usable, key=lambda entry: len(entry.tokens), default=None)


def delta_tokens(delta: Delta) -> Tokens:
    return _words(" ".join(delta.call) if delta.call else delta.text)


def _words(text: str) -> Tokens:
    return tuple(crc32(word.encode()) for word in text.split())


def _common(left: Tokens, right: Tokens) -> int:
    """Length of the common prefix."""
    pairs = zip(left, right, strict=False)
    return next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))
