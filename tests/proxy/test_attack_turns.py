"""Unlucky and hostile turns over a scripted backend: agents that repeat themselves, ids used twice, ends that meet."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from in_process import InProcess, answer_of, decision, in_process, user

from engine.api import Generate, RejectCode
from ninfer_proxy.backends.scripted import Performance, reasoning, text
from ninfer_proxy.errors import StoreUnavailable

KEY = {"authorization": "Bearer k"}


class Terse:
    """Says the same each time, after other thoughts."""

    def __init__(self) -> None:
        self.turns = 0

    def __call__(self, _: Generate) -> Performance:
        self.turns += 1
        return Performance((reasoning(f"thought-{self.turns} " * 100), text("Done.")))


async def test_an_agent_that_always_says_the_same_reuses_its_own_words(tmp_path: Path) -> None:
    """Without a note at the end of each request, and with one that the next request leaves out."""
    for note in ([], [user("It is late.")]):
        async with in_process(tmp_path / str(len(note)), Terse()) as proxy:
            history: list[dict[str, Any]] = []
            prefilled = []
            for task in ("sweep", "wash", "dry", "fold", "iron"):
                history.append(user(f"Please {task}."))
                response = await proxy.create(instructions="sys", input=[*history, *note])
                prefilled.append(int(decision(response)["prefilled"]))
                history += answer_of(response)
            # What is new: the question, and with a note also the answer that stood behind it.
            assert max(prefilled) < (130 if note else 20)
            last = proxy.backend.requests[-1].prompt.messages
            thoughts = [m.reasoning for m in last if m.role == "assistant"]
            assert [each[:9] for each in thoughts if each] == [f"thought-{n}" for n in (1, 2, 3, 4)]


async def test_a_regenerated_answer_with_the_same_words_is_the_latest_one(tmp_path: Path) -> None:
    async with in_process(tmp_path, Terse()) as proxy:
        first = await proxy.create(input=[user("Sweep.")])
        await proxy.create(input=[user("Sweep.")])
        await proxy.create(input=[user("Sweep."), *answer_of(first), user("Wash.")])
        (answered,) = [
            m for m in proxy.backend.requests[-1].prompt.messages if m.role == "assistant"
        ]
        assert answered.reasoning is not None
        assert answered.reasoning.startswith("thought-2 ")


def round_trip(arguments: str, output: str) -> list[dict[str, Any]]:
    return [
        {"type": "function_call", "call_id": "call_1", "name": "exec", "arguments": arguments},
        {"type": "function_call_output", "call_id": "call_1", "output": output},
    ]


async def prompt_of(proxy: InProcess, response: Any) -> list[str]:
    """Arguments and outputs that the response's prompt held, in order."""
    url = f"/v1/responses/{response.json()['id']}/input_items?order=asc&limit=100"
    listed = (await proxy.http.get(url, headers=KEY)).json()["data"]
    return [item.get("arguments") or item["output"] for item in listed if "call_id" in item]


async def test_a_call_id_used_again_is_another_call(tmp_path: Path) -> None:
    async with in_process(tmp_path) as proxy:
        first = await proxy.create(input=[user("go"), *round_trip('{"a": 1}', "one")])
        parent = first.json()["id"]
        other = [user("on"), *round_trip('{"a": 2}', "two")]
        second = await proxy.create(input=other, previous_response_id=parent)
        assert await prompt_of(proxy, second) == ['{"a": 1}', "one", '{"a": 2}', "two"]


async def test_a_call_sent_again_with_its_output_is_taken_once(tmp_path: Path) -> None:
    async with in_process(tmp_path) as proxy:
        first = await proxy.create(input=[user("go"), *round_trip('{"a": 1}', "one")])
        parent = first.json()["id"]
        again = [*round_trip('{ "a":1 }', "one"), user("on")]
        second = await proxy.create(input=again, previous_response_id=parent)
        assert await prompt_of(proxy, second) == ['{"a": 1}', "one"]


async def test_a_refusal_as_patience_ends_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream must not begin as if the turn still queued: nobody would ever end it."""
    waited = asyncio.wait

    async def late(*args: Any, **options: Any) -> Any:
        """The refusal comes between the end of the wait and what the waiter does next."""
        done = await waited(*args, **options)
        await asyncio.sleep(0.05)
        return done

    def refuse(_: Generate) -> Performance:
        return Performance(reject=RejectCode.QUEUE_FULL)

    async with in_process(tmp_path, refuse) as proxy:
        monkeypatch.setattr("ninfer_proxy.turn.running.asyncio.wait", late)
        async with asyncio.timeout(20):
            response = await proxy.create(input="hello", stream=True)
        assert response.status_code == 429


async def test_a_store_that_fails_as_a_turn_ends_ends_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken() -> Any:
        raise StoreUnavailable("The disk is gone.")

    async with in_process(tmp_path, lambda _: Performance((text("hello"),))) as proxy:
        release = proxy.store.slots
        planned = 0

        async def slots() -> Any:
            nonlocal planned
            planned += 1
            return await (release() if planned == 1 else broken())

        monkeypatch.setattr(proxy.store, "slots", slots)
        assert (await proxy.create(input="hi")).status_code == 200
        monkeypatch.undo()
        assert "The disk is gone." in caplog.text
        assert (await proxy.create(input="hi again")).status_code == 200
        health = await proxy.http.get("/health")
        assert health.json()["turns_in_flight"] == 0
