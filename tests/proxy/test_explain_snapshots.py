"""`ninfer-proxy explain` on requests of real clients: the command's own output over a real store, kept as text to be read.

UPDATE_SNAPSHOTS=1 writes the texts anew; read each against its recording before keeping it.
"""

import asyncio
import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from in_process import in_process
from live_server import serving
from recorded_turns import Replay, Script, answers
from typer.testing import CliRunner

from ninfer_proxy import app, cli
from tests.clients.replay import Recorded, requests

SNAPSHOTS = Path(__file__).parents[1] / "snapshots" / "explain"
NOW = 1_000_000.0


@dataclass(frozen=True, slots=True)
class Case:
    """The request `number` of a recording, explained after all those before it. `change` rewrites what is sent."""

    name: str
    recording: str
    number: int
    change: Callable[[Recorded], Recorded] = lambda each: each
    stabilise: str | None = None


def told_time(each: Recorded) -> Recorded:
    """The recorded request with a clock at the end of its system prompt, a minute later with each request."""
    system, *others = each.body["input"]
    (part,) = system["content"]
    clock = f"\nCurrent time: Monday, 06:{each.number:02} UTC"
    timed = {**system, "content": [{**part, "text": part["text"] + clock}]}
    return replace(each, body={**each.body, "input": [timed, *others]})


def turned_tools(each: Recorded) -> Recorded:
    """The recorded request with its tools in another order each time, as clients send that keep them in a set."""
    tools = each.body["tools"]
    at = each.number % len(tools)
    return replace(each, body={**each.body, "tools": [*tools[at:], *tools[:at]]})


CASES = (
    Case("carrier_taken_back", "openclaw/a_nocont", 2),
    Case("tool_loop", "openclaw/b2_cont_ids", 9),
    Case("second_session", "openclaw/d_interleaved", 13),
    Case("retry_rewritten", "openclaw/f1_http500", 41),
    Case("tool_output_rewritten", "openclaw/c_tools_reasoning", 37),
    Case("memory_flush", "openclaw/f8_autocompact", 19),
    Case("compaction_summary", "openclaw/f8_autocompact", 20),
    Case("compacted", "openclaw/f8_autocompact", 21),
    Case("heartbeat", "openclaw/f5_heartbeat", 12),
    Case("heartbeat_in_the_chain", "openclaw/g2_openai_heartbeat", 44),
    Case("exec_completion", "openclaw/g6_recommended", 32),
    Case("sub_agent", "openclaw/g6_recommended", 36),
    Case("activity_recap", "openclaw/c2_parallel", 2),
    Case("title_job_of_a_chat_client", "clients/opencode", 1),
    Case("clock", "openclaw/a_nocont", 2, told_time),
    Case("clock_kept_steady", "openclaw/a_nocont", 2, told_time, "clock"),
    Case("tools_in_another_order", "openclaw/g3_custom_instructions", 55, turned_tools),
    Case("tools_kept_steady", "openclaw/g3_custom_instructions", 55, turned_tools, "tool_order"),
)


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids that count, and a clock that stands a minute before the command's."""
    numbers = itertools.count(1)
    for name in [name for name in os.environ if name.startswith("NINFER_PROXY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(app, "new_id", lambda prefix: f"{prefix}_{next(numbers):04}")
    monkeypatch.setattr(app, "time", SimpleNamespace(time=lambda: NOW))
    monkeypatch.setattr(cli, "time", SimpleNamespace(time=lambda: NOW + 60))


@pytest.mark.usefixtures("still")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_explained(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, outputs = Script(), answers(case.recording)
    settings: dict[str, Any] = {"identity__stabilise": case.stabilise} if case.stabilise else {}
    async with in_process(tmp_path, script, **settings) as proxy:
        run = Replay(proxy, script)
        for each in requests(case.recording):
            if (was_refused(each) and each.number != case.number) or each.number > case.number:
                continue
            response = await run.send(case.change(each), outputs[each.number])
        async with serving(proxy.app) as port:
            monkeypatch.setenv("NINFER_PROXY_URL", f"http://127.0.0.1:{port}")
            monkeypatch.setenv("NINFER_PROXY_ADMIN_TOKEN", "admin")
            command = ["explain", response.json()["id"]]
            result = await asyncio.to_thread(CliRunner().invoke, cli.app, command)
    assert result.exit_code == 0, result.output
    # Tables are drawn with spaces up to their edge.
    shown = "".join(f"{line.rstrip()}\n" for line in result.stdout.splitlines())
    path = SNAPSHOTS / f"{case.name}.txt"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(shown, encoding="utf-8")
    assert shown == path.read_text(encoding="utf-8")


def was_refused(each: Recorded) -> bool:
    """Did the recording server answer with an error? Those of other clients kept no answers."""
    return each.response_id is None and each.path.endswith("/responses")
