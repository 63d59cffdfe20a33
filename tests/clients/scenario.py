"""What is said to OpenClaw, in which order, and how long to wait after each step. Doesn't judge what came of it."""

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tests.clients.classify import Kind, is_carrier, kind_of, last_user_text, tool_names
from tests.clients.openclaw import Client, Said
from tests.clients.recorder import Recorder

MAIN, DESK = "main", "desk"  # the agent's own session, where heartbeats land; and an explicit one
TOOL_OUTPUT = "hello-from-tool"
TOOL_MESSAGE = f"Run the command `echo {TOOL_OUTPUT}` with the exec tool."


class StepFailed(Exception):
    """A step produced no request, or did not end; nothing after it would mean anything."""


@dataclass(frozen=True, slots=True)
class Step:
    do: Literal["say", "wake", "compact"]
    conversation: str
    message: str = ""
    recalls: str = ""  # the answer should contain this; reported, never checked: the model is tiny


@dataclass(frozen=True, slots=True)
class Done:
    step: Step
    said: Said
    seconds: float


STEPS: tuple[Step, ...] = (
    Step("say", MAIN, "Hello!"),
    Step("say", DESK, "Good morning."),
    Step("say", MAIN, "My cat is called Miso."),
    Step("say", DESK, "My favourite colour is green."),
    Step("say", MAIN, TOOL_MESSAGE, recalls=TOOL_OUTPUT),
    Step("say", DESK, "I live in Lisbon."),
    Step("wake", MAIN),
    Step("say", MAIN, "What is my cat called?", recalls="Miso"),
    Step("say", DESK, "What is my favourite colour?", recalls="green"),
    Step("say", MAIN, "My dog is called Bruno."),
    Step("say", DESK, "Where do I live?", recalls="Lisbon"),
    Step("say", MAIN, "What is my dog called?", recalls="Bruno"),
    Step("say", DESK, "Thank you."),
    Step("compact", DESK),
    Step("say", DESK, "Where do I live?", recalls="Lisbon"),
)


def play(client: Client, recorder: Recorder, tell: Callable[[str], None]) -> list[Done]:
    """Every step in order, each one ended (side requests included) before the next begins."""
    done: list[Done] = []
    for number, step in enumerate(STEPS, 1):
        began, seen = time.monotonic(), len(recorder.exchanges)
        said = _do(client, step)
        if step.do == "wake":
            _wait_for(recorder, "heartbeat", seen)
        _settle(recorder)
        if len(recorder.exchanges) == seen:
            raise StepFailed(f"step {number} ({step}) sent no request: {said.text}")
        if step.do == "say" and not any(e.answered for e in recorder.exchanges[seen:]):
            raise StepFailed(f"step {number} ({step.message!r}) was not answered: {said.text}")
        took = time.monotonic() - began
        done.append(Done(step, said, took))
        mark = "" if said.ok else "  <- not ok"
        what = step.message or step.do
        tell(f"{number:2}/{len(STEPS)} {took:5.1f} s  {step.conversation}: {what}{mark}")
        tell(f"{'':15}{' '.join(said.text.split())[:100]}" if step.do == "say" else "")
    return done


def _do(client: Client, step: Step) -> Said:
    if step.do == "wake":
        return client.wake()
    if step.do == "compact":
        return client.compact(step.conversation)
    return client.say(step.conversation, step.message)


def _wait_for(recorder: Recorder, kind: Kind, seen: int, timeout_s: float = 300) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        new = recorder.exchanges[seen:]
        if any(kind_of(e.body, e.history) == kind and e.ended for e in new):
            return
        time.sleep(0.2)
    raise StepFailed(f"no {kind} request was answered within {timeout_s:.0f} s")


def _settle(recorder: Recorder, quiet_s: float = 1.5, timeout_s: float = 300) -> None:
    """Wait until nothing is in flight and nothing new came for a moment: tool loops, recaps, flushes."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if not recorder.in_flight() and time.monotonic() - recorder.last_activity() > quiet_s:
            return
        time.sleep(0.2)
    raise StepFailed(f"a request is still in flight after {timeout_s:.0f} s")


def scripted_tool_turn(
    body: Mapping[str, Any], history: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]] | None:
    """Plays the one turn that must end in a tool call, for a model too small to emit it behind OpenClaw's head."""
    last = next(item for item in reversed(history) if not is_carrier(item)) if history else {}
    if last.get("role") != "user" or "exec" not in tool_names(body):
        return None
    asked = re.search(r"Run the command `([^`]+)`", last_user_text(history))
    if asked is None:
        return None
    arguments = json.dumps({"command": asked[1]})
    call = {"call_id": "call_scripted_1", "name": "exec", "arguments": arguments}
    return [{"type": "function_call", "id": "fc_scripted_1", "status": "completed", **call}]
