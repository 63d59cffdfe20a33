"""Recorded requests sent through the proxy over the scripted backend, which answers as the recording server did. Knows no test."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
from in_process import InProcess, decision

from engine.api import Delta, Generate
from ninfer_proxy.backends.scripted import Performance, call, reasoning, text
from tests.clients.replay import Recorded, requests
from tests.pure import replaying

Output = Sequence[Any]


def deltas(output: Output) -> Iterator[Delta]:
    """A recorded answer as the engine would have produced it."""
    for item in output:
        if item["type"] == "message":
            yield text("".join(part.get("text", "") for part in item["content"]))
        elif item["type"] == "function_call":
            yield call(item["name"], item["arguments"])
        elif item["type"] == "reasoning":
            yield reasoning("Thinking.")


@dataclass
class Script:
    """What the backend answers next."""

    output: Output = ()

    def __call__(self, _: Generate) -> Performance:
        return Performance(tuple(deltas(self.output)))


@dataclass
class Replay:
    """Sends a recording; ids that the recording server gave out are exchanged for ours."""

    proxy: InProcess
    script: Script
    ids: dict[str, str] = field(default_factory=dict)
    turns: list[tuple[Recorded, dict[str, str]]] = field(default_factory=list)

    async def send(self, recorded: Recorded, output: Output) -> httpx.Response:
        """The answer to a request of either format, which the engine gives as `output`."""
        self.script.output = output
        body = json.dumps(recorded.body)
        for theirs, ours in self.ids.items():
            body = body.replace(theirs, ours)
        response = await self.proxy.http.post(
            recorded.path,
            content=json.dumps(json.loads(body) | {"stream": False}),
            headers=recorded.sendable_headers(),
        )
        assert response.status_code == 200, response.text
        self.turns.append((recorded, decision(response)))
        self._note_ids(recorded, response.json())
        return response

    def _note_ids(self, recorded: Recorded, answer: dict[str, Any]) -> None:
        if recorded.response_id:
            self.ids[recorded.response_id] = answer["id"]
        theirs = [item for item in self.script.output if item["type"] == "function_call"]
        ours = [item for item in answer.get("output", ()) if item["type"] == "function_call"]
        if ours:
            for mine, yours in zip(ours, theirs, strict=True):
                self.ids[yours["call_id"]] = mine["call_id"]


def answers(recording: str) -> dict[int, Output]:
    """The answers of a recording; where it has none, what the client brings back of it later."""
    rows = replaying.recorded(recording)
    found: dict[int, Output] = {}
    for index, row in enumerate(rows):
        output = (
            replaying.told_later(row.turn.items, rows[index + 1 :])
            if row.output is None
            else row.output
        )
        found[row.n] = [dict(item.raw) for item in output]
    return found


async def replay(proxy: InProcess, capture: str, script: Script) -> Replay:
    """Send the Responses requests of one of OpenClaw's recordings."""
    run, outputs = Replay(proxy, script), answers(f"openclaw/{capture}")
    for recorded in requests(f"openclaw/{capture}"):
        if recorded.path.endswith("/responses"):
            await run.send(recorded, outputs[recorded.number])
    return run
