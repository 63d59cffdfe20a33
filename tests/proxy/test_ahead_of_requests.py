"""What a backend is asked ahead of requests: prompts to be prepared, hints. Over a stand-in for the engine process; no torch."""

import asyncio

import pytest
from stand_in import PATIENCE_S, READY, Spawner, supervised, until

from engine.api import (
    Anchor,
    AnchorKind,
    Cancel,
    ContinuationId,
    Generate,
    Message,
    Prefetch,
    Prepare,
    Prepared,
    PrepareOutcome,
    Prompt,
    RequestId,
    Retention,
    Started,
    TenantKey,
    encode_frame,
)
from ninfer_proxy.backends.scripted import ScriptedBackend
from ninfer_proxy.errors import EngineUnavailable

CHAT = ContinuationId("c")
PROMPT = Prompt((Message("system", "be brief"), Message("user", "hello there")))
PREPARE = Prepare(
    RequestId("ahead"),
    TenantKey("t"),
    CHAT,
    PROMPT,
    Retention(CHAT, 1, 1.0),
    (Anchor(AnchorKind.HEAD, 1),),
)


async def test_the_engine_prepares_and_tells_how_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    spawner, heard = Spawner(encode_frame(READY)), list[Prepared]()
    async with supervised(monkeypatch, spawner, on_prepared=heard.append) as backend:
        ended = await backend.prepare(PREPARE)
        assert ended == Prepared(RequestId("ahead"), PrepareOutcome.DONE, 5, 3)
        assert heard == [ended]
        backend.prefetch([CHAT])
        backend.prefetch([])
        (engine,) = spawner.processes
        await until(lambda: engine.heard is Prefetch)
        assert engine.commands == [PREPARE, Prefetch((CHAT,))]


async def test_who_waits_no_longer_cancels_it(monkeypatch: pytest.MonkeyPatch) -> None:
    spawner = Spawner(encode_frame(READY))
    async with supervised(monkeypatch, spawner) as backend:
        await backend.wait_ready()
        (engine,) = spawner.processes
        engine.hangs = True
        waiting = asyncio.create_task(backend.prepare(PREPARE))
        await until(lambda: engine.heard is Prepare)
        waiting.cancel()
        await until(lambda: engine.heard is Cancel)
        assert engine.commands[-1] == Cancel(RequestId("ahead"))
        assert (await asyncio.gather(waiting, return_exceptions=True)) != [None]


async def test_an_engine_that_dies_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    spawner = Spawner(encode_frame(READY), encode_frame(READY))
    async with supervised(monkeypatch, spawner) as backend:
        await backend.wait_ready()
        (engine,) = spawner.processes
        engine.hangs = True
        waiting = asyncio.create_task(backend.prepare(PREPARE))
        await until(lambda: engine.heard is Prepare)
        engine.crash()
        with pytest.raises(EngineUnavailable):
            async with asyncio.timeout(PATIENCE_S):
                await waiting


async def test_a_script_has_prepared_what_it_was_asked_to() -> None:
    backend = ScriptedBackend()
    prepared = await backend.prepare(PREPARE)
    assert prepared.outcome is PrepareOutcome.DONE
    assert prepared.computed_tokens == prepared.prompt_tokens
    assert [each.kind for each in prepared.checkpoints] == [AnchorKind.HEAD, AnchorKind.PROMPT_END]
    assert (await backend.prepare(PREPARE)).computed_tokens == 0
    request = Generate(RequestId("r"), TenantKey("t"), CHAT, PROMPT, Retention(CHAT, 1, 1.0))
    started = [event async for event in backend.generate(request) if isinstance(event, Started)]
    assert started[0].reused_tokens == prepared.prompt_tokens
    backend.prefetch([CHAT])
    assert (backend.prepared, backend.prefetched) == ([PREPARE, PREPARE], [CHAT])
