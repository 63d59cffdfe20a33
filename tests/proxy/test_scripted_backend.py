"""The scripted backend keeps the engine's rules: it resumes at checkpoints only, by tokens, within one tenant."""

import asyncio
from contextlib import aclosing
from typing import Any

from engine.api import (
    Anchor,
    AnchorKind,
    ContinuationId,
    Failed,
    Finished,
    FinishReason,
    Generate,
    LedgerEntry,
    Message,
    Prompt,
    RejectCode,
    Rejected,
    RequestId,
    ResumeReason,
    Retention,
    Started,
    TenantKey,
)
from ninfer_proxy.backends.base import Backend
from ninfer_proxy.backends.scripted import Performance, Script, ScriptedBackend, echo, text


def request(*messages: Message, tenant: str = "t", name: str = "k", **fields: Any) -> Generate:
    continuation = ContinuationId(name)
    return Generate(
        RequestId(fields.pop("request_id", "r")),
        TenantKey(tenant),
        continuation,
        Prompt(messages),
        Retention(continuation, 0, 0.0),
        **fields,
    )


async def run(backend: Backend, asked: Generate) -> list[Any]:
    return [event async for event in backend.generate(asked)]


def play(script: Script = echo) -> ScriptedBackend:
    return ScriptedBackend(script)


USER = Message("user", "hello there")


async def test_a_replayed_turn_costs_only_its_new_tokens() -> None:
    backend = play()
    first = await run(backend, request(USER))
    assert first[0].reason is ResumeReason.NOTHING_STORED
    ledger = first[-1].ledger
    answer = Message("assistant", "spelled otherwise", ledger=ledger)
    second = await run(backend, request(USER, answer, Message("user", "more")))
    started = second[0]
    assert isinstance(started, Started)
    assert started.reason is ResumeReason.RESUMED
    # The role, one word, the end and the opener are new.
    assert started.prompt_tokens - started.reused_tokens == 4
    assert started.source is not None
    assert started.source.kind is AnchorKind.TIP


async def test_it_resumes_at_checkpoints_only() -> None:
    backend = play()
    first, second = Message("user", "a b c"), Message("user", "d e f")
    await run(backend, request(first, second, anchors=(Anchor(AnchorKind.HEAD, 1),)))
    changed = (await run(backend, request(first, Message("user", "d e g"))))[0]
    assert (changed.reused_tokens, changed.matched_tokens) == (5, 8)
    assert changed.source.kind is AnchorKind.HEAD


async def test_tenants_share_nothing() -> None:
    backend = play()
    await run(backend, request(USER))
    other = (await run(backend, request(USER, tenant="other")))[0]
    assert (other.reused_tokens, other.matched_tokens) == (0, 0)


async def test_a_foreign_ledger_is_not_used() -> None:
    foreign = LedgerEntry(b"\0\0\0\0", 0, "another tokenizer")
    backend = play()
    plain = await run(backend, request(USER, Message("assistant", "one two")))
    ledger = await run(backend, request(USER, Message("assistant", "one two", ledger=foreign)))
    assert plain[0].prompt_tokens == ledger[0].prompt_tokens


async def test_ends() -> None:
    three = (text("a "), text("b "), text("c"))
    cut = await run(play(lambda _: Performance(three)), request(USER, max_tokens=2))
    assert isinstance(cut[-1], Finished)
    assert (cut[-1].reason, len(cut)) == (FinishReason.LENGTH, 4)
    failed = await run(play(lambda _: Performance(three, fail_after=1)), request(USER))
    assert isinstance(failed[-1], Failed)
    refused = await run(play(lambda _: Performance(reject=RejectCode.QUEUE_FULL)), request(USER))
    assert [type(event) for event in refused] == [Rejected]
    long = await run(ScriptedBackend(context_tokens=3), request(USER))
    assert long[0].code is RejectCode.CONTEXT_LENGTH_EXCEEDED


async def test_cancelling_and_closing_both_end_a_silent_request() -> None:
    backend = play(lambda _: Performance((text("a"),), hang_after=0))
    waiting = asyncio.create_task(run(backend, request(USER)))
    while not backend.requests:
        await asyncio.sleep(0)
    await asyncio.sleep(0.01)
    backend.cancel(RequestId("r"))
    events = await waiting
    assert events[-1].reason is FinishReason.CANCELLED
    async with aclosing(backend.generate(request(USER, request_id="r2"))) as stream:
        await anext(stream)
    assert backend.cancelled == ["r", "r2"]


async def test_dropping_is_reported_once_and_seen_in_the_snapshot() -> None:
    backend = play()
    await run(backend, request(USER))
    (continuation,) = (await backend.snapshot()).continuations
    assert len(continuation.checkpoints) == 1
    backend.drop(ContinuationId("k"), "test")
    (dropped,) = backend.dropped()
    assert (dropped.checkpoints, dropped.reason) == (continuation.checkpoints, "test")
    assert backend.dropped() == ()
    assert (await backend.snapshot()).continuations == ()
