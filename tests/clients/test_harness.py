"""The harness's own judgement: real recorded requests are named rightly, and a run that went wrong fails its checks."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.clients import openclaw, replay
from tests.clients.checks import Evidence, all_checks
from tests.clients.classify import kind_of, session_of
from tests.clients.proxy import Cold
from tests.clients.recorder import EventReader
from tests.clients.rows import Row
from tests.clients.scenario import TOOL_MESSAGE, scripted_tool_turn

KINDS = {
    "openclaw/a_nocont": ["user turn"] * 3 + ["tool result", "user turn"],
    "openclaw/f4_compaction": ["summary", "summary", "user turn", "user turn"],
    "openclaw/f8_autocompact": ["user turn", "memory flush", "summary"] * 3
    + ["user turn", "memory flush"],
}


def recorded(capture: str) -> list[replay.Recorded]:
    return list(replay.requests(capture))


@pytest.mark.parametrize("capture", KINDS)
def test_recorded_requests_are_classified(capture: str) -> None:
    found = [kind_of(request.body, request.body["input"]) for request in recorded(capture)]
    assert found == KINDS[capture]


def test_heartbeats_are_told_from_turns_of_the_same_session() -> None:
    rows = recorded("openclaw/f5_heartbeat")
    found = [
        (session_of(row.body, row.sendable_headers()), kind_of(row.body, row.body["input"]))
        for row in rows
    ]
    assert found.count(("x", "heartbeat")) == 1
    assert found.count(("x", "user turn")) == 3


def test_session_is_found_without_any_header() -> None:
    found = {session_of(row.body, {}) for row in recorded("openclaw/a_nocont")}
    assert len(found) == 1
    assert None not in found


def test_events_are_read_however_they_are_cut() -> None:
    frames = b': keep-alive\n\nevent: a\r\ndata: {"type": "a"}\r\n\r\ndata: {"type":\ndata: "b"}\n\ndata: [DONE]\n\n'
    for size in range(1, len(frames)):
        reader = EventReader()
        pieces = [frames[at : at + size] for at in range(0, len(frames), size)]
        found = [event["type"] for piece in pieces for event in reader.feed(piece)]
        assert found == ["a", "b"]


def test_scripted_call_is_played_once() -> None:
    body = {"tools": [{"type": "function", "name": "exec"}]}
    asked = [{"role": "user", "content": [{"type": "input_text", "text": TOOL_MESSAGE}]}]
    call = scripted_tool_turn(body, asked)
    assert call is not None
    assert json.loads(call[0]["arguments"]) == {"command": "echo hello-from-tool"}
    answered = [*asked, call[0], {"type": "function_call_output", "output": "hello-from-tool"}]
    assert scripted_tool_turn(body, answered) is None


def test_plain_configuration_has_no_compat_flag_and_an_own_provider() -> None:
    plain, shipped = (make("http://h/v1", "k") for make in (openclaw.plain, openclaw.recommended))
    assert "compat" not in json.dumps(plain)
    assert "openai" not in plain["models"]["providers"]
    assert shipped["models"]["providers"]["openai"]["baseUrl"] == "http://h/v1"
    assert openclaw.provider(shipped)["models"][0]["compat"]["supportsResponsesContinuation"]


GOOD = Row(
    number=0,
    session="A",
    kind="user turn",
    continued=False,
    response_id="resp",
    status=200,
    answered=True,
    prompt=16_000,
    reused=15_800,
    prefilled=200,
    differs=150,
    decision="d",
    conversation="conv-A",
    slot="slot-A",
    reason="cache_hit",
    first_token_s=0.5,
    seconds=1.0,
    sent_kb=50.0,
    later_turn=True,
    after_compaction=False,
    head_changed=False,
    head_share=0.97,
    scripted=False,
    error=None,
)


def good_run() -> Evidence:
    """Six turns of A with a heartbeat among them, seven of B, the last on a compacted history."""
    rows: list[Row] = []
    for name, turns in (("A", 6), ("B", 7)):
        mine = replace(GOOD, session=name, conversation=f"conv-{name}", slot=f"slot-{name}")
        rows.append(replace(mine, later_turn=False, reused=0, prefilled=16_000))
        rows += [mine] * (turns - 2)
        rows.append(replace(mine, after_compaction=name == "B", reused=15_800))
    rows.append(replace(GOOD, kind="heartbeat", later_turn=False, slot="side"))
    rows.append(replace(GOOD, kind="summary", later_turn=False, session="-", slot="side"))
    numbered = [replace(row, number=number) for number, row in enumerate(rows)]
    slots = [{"conversation": f"conv-{name}", "class": "idle"} for name in "AB"]
    return Evidence(
        rows=numbered,
        slots=[*slots, {"conversation": "conv-A", "class": "side"}],
        head_tokens=15_500,
        tool_outputs=["hello"],
        compacted=True,
        cold=[Cold(number=2, prompt=16_000, reused=0, first_token_s=20.0, error=None)],
        unexplained=[],
        headers=[["User-Agent", "session_id", "content-type"], ["user-agent", "traceparent"]],
    )


def failures(evidence: Evidence) -> list[str]:
    return [check.name for check in all_checks(evidence, "hello") if not check.passed]


def changed(rows: Sequence[Row], number: int, row: Row) -> list[Row]:
    return [row if old.number == number else old for old in rows]


def test_a_good_run_passes() -> None:
    assert failures(good_run()) == []


def test_head_prefilled_again_fails() -> None:
    run = good_run()
    again = replace(run.rows[3], reused=4_000, prefilled=12_000)
    found = failures(replace(run, rows=changed(run.rows, 3, again)))
    assert "no later user turn prefilled the head again" in found


def test_compacted_turn_must_reuse_the_head() -> None:
    run = good_run()
    (number,) = (row.number for row in run.rows if row.after_compaction)
    cold = replace(run.rows[number], reused=0, prefilled=15_700)
    found = failures(replace(run, rows=changed(run.rows, number, cold)))
    assert "no later user turn prefilled the head again" in found


def test_second_slot_for_one_conversation_fails() -> None:
    run = good_run()
    twice = [*run.slots, {"conversation": "conv-A", "class": "recent"}]
    assert failures(replace(run, slots=twice)) == ["exactly one slot for each conversation"]


def test_session_spread_over_two_slots_fails() -> None:
    run = good_run()
    moved = replace(run.rows[2], slot="slot-C")
    found = failures(replace(run, rows=changed(run.rows, 2, moved)))
    assert found == ["explain names one conversation and one slot per session"]


@pytest.mark.parametrize("names", [["user-agent", "x-openclaw-session"], ["session_id"]])
def test_headers_that_came_or_went_fail(names: list[str]) -> None:
    run = replace(good_run(), headers=[["user-agent"], names])
    assert failures(run) == ["OpenClaw sends the headers it is known for"]


def test_warm_cold_run_and_missing_tool_fail() -> None:
    run = good_run()
    leaked = replace(run, cold=[replace(run.cold[0], reused=64)], tool_outputs=[])
    assert failures(leaked) == ["OpenClaw ran the tool", "another API key reuses nothing"]
