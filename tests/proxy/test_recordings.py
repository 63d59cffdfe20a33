"""Recorded requests of the real OpenClaw through the whole proxy over the scripted backend: one slot a session, heads computed once."""

import json
from pathlib import Path

import pytest
from in_process import in_process
from recorded_turns import Replay, Script, answers, replay

from tests.clients.replay import Recorded, requests

WHOLE = ("a_nocont", "b_cont", "b2_cont_ids", "g3_custom_instructions", "g6_recommended")


def is_event_run(recorded: Recorded) -> bool:
    """OpenClaw's own turns under the main session: known by what they ask (openclaw.md section 5)."""
    asked = json.dumps(recorded.body.get("input", "")[-3:])
    marks = ("An async command completion event", "A background task completed", "heartbeat")
    return any(mark in asked for mark in marks)


@pytest.mark.parametrize("capture", WHOLE)
async def test_one_slot_a_session_and_the_head_once(tmp_path: Path, capture: str) -> None:
    script = Script()
    async with in_process(tmp_path, script) as proxy:
        run = await replay(proxy, capture, script)
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


WITH_SIDES = (
    "f5_heartbeat",
    "f8_autocompact",
    "g2_openai_heartbeat",
    "g6_recommended",
    "c2_parallel",
)


@pytest.mark.parametrize("capture", WITH_SIDES)
async def test_side_requests_take_nothing_from_the_main_line(tmp_path: Path, capture: str) -> None:
    """Sent with and without its client's own runs, a conversation reuses as many tokens in each of its turns."""
    reused = []
    for sides in (True, False):
        script = Script()
        async with in_process(tmp_path / str(sides), script) as proxy:
            run, outputs = Replay(proxy, script), answers(f"openclaw/{capture}")
            for recorded in requests(f"openclaw/{capture}"):
                if recorded.path.endswith("/responses") and (sides or is_main(recorded)):
                    await run.send(recorded, outputs[recorded.number])
        mains = [(r.number, d) for r, d in run.turns if is_main(r)]
        reused.append({number: (d["reused"], d["prefilled"], d["reason"]) for number, d in mains})
        assert len({d["slot"] for _, d in mains}) == len({d["conversation"] for _, d in mains})
    assert reused[0] == reused[1]


def is_main(recorded: Recorded) -> bool:
    return len(recorded.body.get("tools", ())) == 12


def session_of(recorded: Recorded) -> str:
    """The header where it is sent, else the session in the system text; one recording holds one such session."""
    return dict(recorded.headers).get("session_id", "by its text")
