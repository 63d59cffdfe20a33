"""Decisions at the same time: of one conversation they see each other, unrelated ones don't wait for each other."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from in_process import InProcess, decision, in_process, user

from engine.api import ContinuationId

PATIENCE_S = 20.0
HEAD = "You help. " * 50


async def begin(proxy: InProcess, words: str, key: str = "k") -> dict[str, str]:
    response = await proxy.create(key, instructions=HEAD, input=[user(words)])
    assert response.status_code == 200, response.text
    return decision(response)


async def test_unrelated_conversations_do_not_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with in_process(tmp_path) as proxy:
        look, free = proxy.store.find_lines, asyncio.Event()
        waiting: set[str] = set()

        async def slow(tenant: Any, *asked: Any) -> Any:
            if not waiting or tenant in waiting:
                waiting.add(tenant)
                await free.wait()
            return await look(tenant, *asked)

        monkeypatch.setattr(proxy.store, "find_lines", slow)
        held = asyncio.create_task(begin(proxy, "one", key="a"))
        async with asyncio.timeout(PATIENCE_S):
            while not waiting:
                await asyncio.sleep(0.005)
            await begin(proxy, "two", key="b")
        assert not held.done()
        free.set()
        assert (await held)["slot"] == "1"


@pytest.mark.parametrize("scoped", [True, False])
async def test_a_turn_that_begins_and_ends_while_another_looks_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scoped: bool
) -> None:
    """It was in no record when the other read them, and runs no longer when the other counts those that run."""
    headers = {"session-id": "s-1"} if scoped else {}
    async with in_process(tmp_path) as proxy:
        look = proxy.store.find_lines
        first: list[Any] = []

        async def overtaken(*asked: Any) -> Any:
            stale = await look(*asked)
            monkeypatch.undo()
            first.append(await proxy.create(instructions=HEAD, input=[user("go")], headers=headers))
            return stale

        monkeypatch.setattr(proxy.store, "find_lines", overtaken)
        second = await proxy.create(instructions=HEAD, input=[user("go")], headers=headers)
        assert decision(second)["conversation"] == decision(first[0])["conversation"]
        assert len(await proxy.slots()) == 1


async def test_evictions_at_the_same_time_take_different_slots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with in_process(tmp_path, slots__count=2) as proxy:
        old = [await begin(proxy, words, key=words) for words in ("one", "two")]
        release, free = proxy.store.release_slots, asyncio.Event()
        dropped: list[str] = []

        async def late(released: Any) -> None:
            await free.wait()
            await release(released)

        def drop(continuation: ContinuationId, *_: object) -> None:
            dropped.append(continuation)

        monkeypatch.setattr(proxy.store, "release_slots", late)
        monkeypatch.setattr(proxy.backend, "drop", drop)
        new = await asyncio.gather(*(begin(proxy, words, key=words) for words in ("six", "ten")))
        free.set()
        assert sorted(dropped) == sorted(each["conversation"] for each in old)
        assert {each["slot"] for each in new} == {"0", "1"}
        assert {slot["conversation"] for slot in await proxy.slots()} == {
            each["conversation"] for each in new
        }
