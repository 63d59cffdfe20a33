"""The steps of a case that are done to the server or its clients, one function each. Knows how; when is the case's business."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.cases.answer import Answer, Cut
from tests.cases.case import Control
from tests.cases.client import send
from tests.cases.macros import mapped, numbered, words
from tests.cases.play import MODEL, Play
from tests.cases.proxy import POLL_S, Unsupported

CONDITION_WAIT_S = 60.0
KILL_WITHIN_S = (0.1, 1.5)
STATE_DIR = "engine-state"
SESSION_HEADER = "session-id"
FILLER_WORDS, MOST_FILLERS = 2000, 8

CarryOut = Callable[[Play, Control], Awaitable[None]]


class NotReached(Exception):
    """What a control waits for never came; the case can't be played as it is written."""


# --- the server ---------------------------------------------------------------------------------


async def restart_server(play: Play, control: Control) -> None:
    given = control.parameters
    if given.get("mode", "clean") == "clean":
        await play.proxy.stop()
    else:
        play.proxy.kill()
    play.proxy.change(given.get("options", {}))
    await _start(play, control.step)


async def stop_server(play: Play, _: Control) -> None:
    await play.proxy.stop()


async def start_server(play: Play, control: Control) -> None:
    kill_after_ms = control.parameters.get("kill_after_ms")
    if kill_after_ms is None:
        await _start(play, control.step)
        return
    play.proxy.launch()
    await asyncio.sleep(kill_after_ms / 1000)
    play.proxy.kill()


async def kill_server(play: Play, control: Control) -> None:
    """`repeat` kills, the server started again between them, each at a random moment. The integrity of what each leaves is noted."""
    repeat = control.parameters.get("repeat", 1)
    for number in range(repeat):
        if number:
            await play.proxy.start()
        if control.parameters.get("at") == "random":
            await asyncio.sleep(play.chance.uniform(*KILL_WITHIN_S))
        play.proxy.kill()
        found = await asyncio.to_thread(play.records.integrity_of_the_dead)
        play.evidence.database.integrity.append(found)


async def _start(play: Play, step: str) -> None:
    await play.proxy.start()
    play.evidence.seconds.setdefault(step, {})["ready"] = play.proxy.ready_s


# --- clients ------------------------------------------------------------------------------------


async def disconnect(play: Play, control: Control) -> None:
    """The client of a running request leaves once the condition holds. Errors: NotReached."""
    step, after = control.parameters["of"], control.parameters["after"]
    answer = play.evidence.answers[step]
    deadline = time.monotonic() + CONDITION_WAIT_S
    done = 0
    while not (holds := await _holds(play, answer, after)):
        done = await _prompt_done(play, answer)
        if not play.runs(step) or time.monotonic() > deadline:
            raise NotReached(f"{step} never came to {after}")
        await asyncio.sleep(POLL_S)
    if "prefill_fraction" in after:
        done = holds
    await play.leave(step)
    answer.cut = Cut(done, await play.proxy.let_go(answer.response_id))
    await play.ask_about(answer)
    await play.catch_up()


async def _holds(play: Play, answer: Answer, after: dict[str, Any]) -> int:
    """Whether it's time, as a number that isn't 0; for a part of the prompt its tokens."""
    if "events" in after:
        stream = answer.stream
        return int(stream is not None and len(stream.of_type(after["events"])) >= after["count"])
    if "prefill_fraction" in after:
        lane = await play.proxy.lane_of(answer.response_id) if answer.response_id else None
        if (
            lane is None
            or lane["computed_tokens"] < after["prefill_fraction"] * lane["prompt_tokens"]
        ):
            return 0
        return int(lane["computed_tokens"])
    if after == {"state": "queued"}:
        known = answer.response_id
        return int(bool(known) and await play.proxy.lane_of(known) is None)
    raise Unsupported(f"disconnect after {after}")


async def _prompt_done(play: Play, answer: Answer) -> int:
    lane = await play.proxy.lane_of(answer.response_id) if answer.response_id else None
    return int(lane["computed_tokens"]) if lane else 0


async def wait(_: Play, control: Control) -> None:
    given = control.parameters
    await asyncio.sleep(given["seconds"] if "seconds" in given else given["ms"] / 1000)


async def generate(play: Play, control: Control) -> None:
    """`count` requests from a template, some at once. Beside other steps each is tried again until it is answered."""
    given = control.parameters
    answers = play.evidence.generated.setdefault(control.step, [])
    numbers = iter(range(1, given["count"] + 1))

    async def client() -> None:
        for number in numbers:
            answers.append(await _generate_one(play, control, number))
            play.note_memory()

    work = asyncio.gather(*(client() for _ in range(given.get("concurrency", 1))))
    if given.get("async_"):
        play.beside(work)
    else:
        await work


async def _generate_one(play: Play, control: Control, number: int) -> Answer:
    template = numbered(control.parameters["template"], number)
    body = mapped(template["body"], lambda text: text.replace("{{model}}", MODEL))
    headers = {**play.key, **template.get("headers", {})}
    while True:
        answer = Answer(f"{control.step}.{number}", template["path"], body)
        if play.proxy.is_running:
            await send(play.proxy.url, "POST", template["path"], body, headers, answer)
        if answer.status == 200 and not answer.trouble:
            return answer
        if not control.parameters.get("async_"):
            return answer
        await asyncio.sleep(POLL_S)


# --- state and database ------------------------------------------------------------------------


async def drop_all_caches(play: Play, _: Control) -> None:
    await play.proxy.drop_caches()


async def park_session(play: Play, control: Control) -> None:
    """Others' prompts push a session's state out of the device, as they would in time. Errors: NotReached."""
    conversations = {
        (play.evidence.answer(request.step).explained or {}).get("conversation")
        for request in play.case.requests()
        if request.headers.get(SESSION_HEADER) == control.parameters["session"]
        and request.step in play.evidence.answers
    }
    for number in range(MOST_FILLERS):
        slots = (await play.proxy.admin("slots") or {})["slots"]
        held = [each for each in slots if each["conversation"] in conversations]
        tiers = {point["tier"] for each in held for point in each["checkpoints"]}
        if tiers and "device" not in tiers:
            return
        body = {"input": words(f"filler{number}", FILLER_WORDS), "max_output_tokens": 1}
        headers = {"authorization": f"Bearer filler{number}"}
        filler = Answer("filler", "/v1/responses", body)
        await send(play.proxy.url, "POST", filler.path, body, headers, filler)
    raise NotReached(f"state stayed on the device through {MOST_FILLERS} prompts of others")


async def restore_session(play: Play, control: Control) -> None:
    """The request of an earlier step comes again, which brings back its state."""
    await play.again(control.parameters["at"])


async def corrupt_state_file(play: Play, control: Control) -> None:
    """Flips bytes in every file of state on disk: the only ones there are the step's."""
    how = control.parameters["how"]
    files = [
        path
        for path in (play.proxy.data_dir / STATE_DIR).rglob("*")
        if path.stat().st_size > 1024 and path.is_file()
    ]
    if not files:
        raise NotReached("no state was on disk to be corrupted")
    for path in files:
        await asyncio.to_thread(_flip, path, how["xor_bytes"], how["at"])


def _flip(path: Path, count: int, at: str) -> None:
    data = bytearray(path.read_bytes())
    start = {"start": 0, "middle": len(data) // 2, "end": len(data) - count}[at]
    for index in range(start, start + count):
        data[index] ^= 0xFF
    path.write_bytes(data)


async def hold_write_lock(play: Play, control: Control) -> None:
    held = asyncio.to_thread(play.records.hold_write_lock, control.parameters["seconds"])
    if control.parameters.get("async_"):
        play.beside(held)
        await asyncio.sleep(0.2)
    else:
        await held


async def install_fixture_db(play: Play, control: Control) -> None:
    given = control.parameters
    await play.records.install_fixture(
        given["schema"], given["rows"], given.get("chain_depth", 0), play.api_key
    )


CONTROLS: dict[str, CarryOut] = {
    each.__name__: each
    for each in (
        restart_server,
        stop_server,
        start_server,
        kill_server,
        disconnect,
        wait,
        generate,
        drop_all_caches,
        park_session,
        restore_session,
        corrupt_state_file,
        hold_write_lock,
        install_fixture_db,
    )
}
