"""Recorded requests of the real OpenClaw through the whole proxy over the scripted backend: one slot a session, heads computed once."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from in_process import InProcess, decision, in_process

from engine.api import Delta, Generate
from ninfer_proxy.backends.scripted import Performance, call, reasoning, text
from tests.clients.replay import Recorded, requests

WHOLE = ("a_nocont", "b_cont", "b2_cont_ids", "g3_custom_instructions", "g6_recommended")


def deltas(output: Sequence[Any]) -> Iterator[Delta]:
    """A recorded answer as the engine would have produced it."""
    for item in output:
        if item["type"] == "message":
            yield text("".join(part.get("text", "") for part in item["content"]))
        elif item["type"] == "function_call":
            yield call(item["name"], item["arguments"])
        elif item["type"] == "reasoning":
            yield reasoning("Thinking.")


@dataclass
class Replay:
    """Sends a recording; ids that the recording server gave out are exchanged for ours."""

    proxy: InProcess
    answers: list[Recorded]
    ids: dict[str, str] = field(default_factory=dict)
    turns: list[tuple[Recorded, dict[str, str]]] = field(default_factory=list)

    async def send(self, recorded: Recorded) -> None:
        self.answers.append(recorded)
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
        answer = response.json()
        if recorded.response_id:
            self.ids[recorded.response_id] = answer["id"]
        theirs = [item for item in recorded.output if item["type"] == "function_call"]
        ours = [item for item in answer["output"] if item["type"] == "function_call"]
        for mine, yours in zip(ours, theirs, strict=True):
            self.ids[yours["call_id"]] = mine["call_id"]


def is_event_run(recorded: Recorded) -> bool:
    """OpenClaw's own turns under the main session: known by what they ask (openclaw.md section 5)."""
    asked = json.dumps(recorded.body.get("input", "")[-3:])
    marks = ("An async command completion event", "A background task completed", "heartbeat")
    return any(mark in asked for mark in marks)


async def replay(proxy: InProcess, capture: str, answers: list[Recorded]) -> Replay:
    run = Replay(proxy, answers)
    for recorded in requests(f"openclaw/{capture}"):
        if recorded.path.endswith("/responses"):
            await run.send(recorded)
    return run


@pytest.mark.parametrize("capture", WHOLE)
async def test_one_slot_a_session_and_the_head_once(tmp_path: Path, capture: str) -> None:
    answers: list[Recorded] = []

    def script(_: Generate) -> Performance:
        return Performance(tuple(deltas(answers[-1].output)))

    async with in_process(tmp_path, script) as proxy:
        run = await replay(proxy, capture, answers)
        slots = await proxy.slots()
        mains = [slot for slot in slots if slot["class"] not in ("side", "finished_subagent")]
        own = [(r, d) for r, d in run.turns if not is_event_run(r) and is_main(r)]
        sessions = {session_of(recorded) for recorded, _ in own}
        assert len(mains) == len(sessions)
        first: set[str] = set()
        for recorded, told in own:
            session = session_of(recorded)
            prompt = int(told["reused"]) + int(told["prefilled"])
            if session in first:
                # input_changed: after an event run the client rewrites that run's own message.
                known = ("cache_hit", "transient_item", "input_changed")
                assert told["reason"] in known, (recorded.number, told)
                assert int(told["prefilled"]) < prompt / 3, (recorded.number, told)
            first.add(session)


def is_main(recorded: Recorded) -> bool:
    return len(recorded.body.get("tools", ())) == 12


def session_of(recorded: Recorded) -> str:
    """The header where it is sent, else the session in the system text; one recording holds one such session."""
    return dict(recorded.headers).get("session_id", "by its text")
