"""What is remembered between turns changes nothing but the time they take: with it and without, all is the same."""

from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
from in_process import ADMIN, InProcess, in_process
from sqlalchemy import Connection
from sqlalchemy import text as sql

from engine.api import Generate
from ninfer_proxy import app
from ninfer_proxy.backends.scripted import Performance, Script, call, reasoning, text
from ninfer_proxy.store import numbering
from ninfer_proxy.turn.remembered import LastTurns

TURNS = 40
TABLES = (
    "SELECT id, scope, role, tip_response, slot, hits FROM conversations ORDER BY key",
    "SELECT conversation, number, digest, occurrence, canonical, item_id, payload FROM items ORDER BY 1, 2",
    "SELECT * FROM lines ORDER BY 1",
    "SELECT id, conversation, prompt, output, output_digest, ledger_tokens, decision FROM responses ORDER BY key",
)


def script_of_answers() -> Script:
    """Calls a tool or thinks when it is told to. No two answers are alike: which of equal ones a history means may be told apart
    better by what is remembered.
    """
    numbers = count()

    def script(request: Generate) -> Performance:
        words, number = request.prompt.messages[-1].text, next(numbers)
        if words == "use the tool":
            return Performance((text(f"Look {number}. "), call("run", '{"a": 1}')))
        if words == "think":
            return Performance((reasoning(f"hm {number}"), text(f"Done {number}.")))
        return Performance((text(f"Done {number}."),))

    return script


class Client:
    """The same seed makes the same moves: goes on, names the response before, respells, marks, edits what it said."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.history = [self._asked()]
        self._fresh = 1
        self._last: str | None = None

    def request(self) -> dict[str, Any]:
        head = {"instructions": "Be brief."}
        if self._last is not None and self._random.random() < 0.4:
            return head | {
                "input": self.history[-self._fresh :],
                "previous_response_id": self._last,
            }
        return head | {"input": self.history}

    def hear(self, body: dict[str, Any]) -> None:
        self._last, self._fresh = body["id"], 1
        if self._random.random() < 0.15:
            asked = [at for at, item in enumerate(self.history) if item.get("role") == "user"]
            self.history = [*self.history[: self._random.choice(asked)], self._asked()]
            self._last = None
            return
        bare = self._random.random() < 0.4
        for item in body["output"]:
            if not bare:
                self.history.append(item)
            elif item["type"] != "reasoning":
                kept = {name: each for name, each in item.items() if name not in ("id", "status")}
                self.history.append(kept)
        called = [item["call_id"] for item in body["output"] if item["type"] == "function_call"]
        answers = [
            {"type": "function_call_output", "call_id": call_id, "output": "ok"}
            for call_id in called
        ]
        self.history += answers or [self._asked()]

    def _asked(self) -> dict[str, Any]:
        part: dict[str, Any] = {"type": "input_text"}
        part["text"] = self._random.choice(("go on", "go on", "use the tool", "think"))
        if self._random.random() < 0.2:
            part["cache_control"] = {"type": "ephemeral"}
        return {"type": "message", "role": "user", "content": [part]}


async def had(proxy: InProcess, seed: int) -> list[object]:
    """All that came of a conversation: what the engine was asked for, what the client was told, what is stored."""
    client, told = Client(seed), []
    for _ in range(TURNS):
        response = await proxy.create(**client.request())
        assert response.status_code == 200, response.text
        told.append(response.headers["x-ninfer-decision"])
        client.hear(response.json())
    asked = [(each.prompt, each.anchors, each.continuation) for each in proxy.backend.requests]

    def stored(connection: Connection) -> list[list[tuple[object, ...]]]:
        return [[tuple(row) for row in connection.execute(sql(table))] for table in TABLES]

    return [asked, told, await proxy.store._database.read(stored)]


@pytest.mark.parametrize("seed", range(6))
async def test_all_is_the_same_when_nothing_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    results = []
    for remembering in (True, False):
        numbers = count()
        monkeypatch.setattr(app, "new_id", lambda kind, numbers=numbers: f"{kind}_{next(numbers)}")
        if not remembering:
            monkeypatch.setattr(LastTurns, "keep", lambda self, turn: None)
            monkeypatch.setattr(numbering, "REMEMBERED_ITEMS", 0)
        async with in_process(tmp_path / str(remembering), script_of_answers()) as proxy:
            results.append(await had(proxy, seed))
    assert results[0] == results[1]


async def test_what_was_deleted_is_not_remembered(tmp_path: Path) -> None:
    async with in_process(tmp_path, script_of_answers()) as proxy:
        first = await proxy.create(input="think")
        key = {"authorization": "Bearer k"}
        gone = await proxy.http.delete(f"/v1/responses/{first.json()['id']}", headers=key)
        assert gone.json()["deleted"]
        named = await proxy.create(input="on", previous_response_id=first.json()["id"])
        assert named.json()["error"]["code"] == "previous_response_not_found"
        history = [
            {"role": "user", "content": "think"},
            *first.json()["output"],
            {"role": "user", "content": "on"},
        ]
        again = await proxy.create(input=history)
        assert again.status_code == 200
        assert proxy.backend.requests[-1].prompt.messages[1].ledger is None


@pytest.mark.parametrize("named", [True, False])
async def test_a_head_is_remembered_as_it_was_sent(tmp_path: Path, named: bool) -> None:
    """What was made of it for the engine is made again, and told again."""
    async with in_process(tmp_path, script_of_answers(), identity__stabilise="clock") as proxy:
        history = [{"role": "system", "content": "It is 10:11."}, {"role": "user", "content": "on"}]
        first = await proxy.create(input=history)
        asked = {"role": "user", "content": "go on"}
        request: dict[str, Any] = {"input": [*history, *first.json()["output"], asked]}
        if named:
            request = {"input": [asked], "previous_response_id": first.json()["id"]}
        again = (await proxy.create(**request)).json()["id"]
        told = await proxy.http.get(f"/admin/responses/{again}", headers=ADMIN)
        assert told.json()["stabilised"] == ["clock: “10:11” in item 0 became “--:--”"]
        assert proxy.backend.requests[-1].prompt.messages[0].text == "It is --:--."
