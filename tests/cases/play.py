"""Plays one case against a proxy and gathers what checks need. Knows steps and their order; judges nothing."""

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from ninfer_proxy.admin.debug import OUTPUT_HEADER
from tests.cases.answer import Answer
from tests.cases.case import Case, Control, Parallel, Request
from tests.cases.client import send
from tests.cases.database import Records
from tests.cases.dictation import dictated, endless
from tests.cases.evidence import Database, Evidence, Memory
from tests.cases.macros import with_answers
from tests.cases.prompt_text import PromptTokens
from tests.cases.proxy import POLL_S, Proxy

MODEL = "demo"
STEADY = frozenset({"attribution", "tool_order", "tool_keys"})
"""Equivalences that the proxy is to be told of; those of arguments and tool types it knows by itself."""
STORED_WAIT_S = 5.0
PARENT = "previous_response_id"
OUTPUT_LIMITS = ("max_output_tokens", "max_tokens")


class Play:
    """Mutable; one for each case. `controls` of a case use its public methods."""

    def __init__(self, case: Case, proxy: Proxy, text: PromptTokens) -> None:
        self.case, self.proxy, self.text = case, proxy, text
        self.evidence = Evidence(text, database=Database())
        self.records = Records(proxy.data_dir)
        self.chance = random.Random(case.id)
        self.api_key = f"case-{case.id}"
        self.key = {"authorization": f"Bearer {self.api_key}"}
        self._running: dict[str, asyncio.Task[Answer]] = {}
        self._background: list[asyncio.Future[Any]] = []
        cuts = [each for each in case.controls() if each.name == "disconnect"]
        self._to_be_cut = {each.parameters["of"] for each in cuts}
        # Who leaves after so many pieces must find as many.
        self._endless = {
            each.parameters["of"] for each in cuts if "events" in each.parameters["after"]
        }

    async def run(
        self, carry_out: "Mapping[str, Callable[[Play, Control], Awaitable[None]]]"
    ) -> None:
        """All steps. `carry_out` maps names of controls to what they do."""
        try:
            if not wants_its_own_start(self.case) and not self.proxy.is_running:
                await self.proxy.start()
                await self.note_memory_at_start()
            for step in self.case.steps:
                if isinstance(step, Control):
                    await carry_out[step.name](self, step)
                elif isinstance(step, Parallel):
                    await self._in_parallel(step)
                else:
                    await self._one(step)
            await self.catch_up()
            await asyncio.gather(*self._background)
        finally:
            for task in (*self._running.values(), *self._background):
                task.cancel()

    # --- requests ------------------------------------------------------------------------------

    async def _one(self, request: Request) -> None:
        before = await self._rows_before(request.step)
        self._begin(request)
        if request.step in self._to_be_cut:
            return
        await self.catch_up()
        if before is not None:
            after = await asyncio.to_thread(self.records.row_counts)
            self.evidence.database.added[request.step] = sum(after.values()) - sum(before.values())

    async def _rows_before(self, step: str) -> dict[str, int] | None:
        counted = {
            each.parameters["step"] for each in self.case.checks if each.name == "rows_written_max"
        }
        return await asyncio.to_thread(self.records.row_counts) if step in counted else None

    async def _in_parallel(self, step: Parallel) -> None:
        for request in step.requests:
            self._begin(request)
            await asyncio.sleep(step.stagger_s)
        if not self._to_be_cut & {request.step for request in step.requests}:
            await self.catch_up()

    def _begin(self, request: Request) -> None:
        body = self._body(request)
        answer = Answer(request.step, request.path, body)
        self.evidence.answers[request.step] = answer
        headers = self.headers(request, body)
        sending = self._send_and_ask(request, body, headers, answer)
        self._running[request.step] = asyncio.create_task(sending, name=request.step)

    def _body(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = with_answers(request.body, self.evidence.answers, MODEL)
        if request.fixture_parent is not None:
            body[PARENT] = request.fixture_parent
        return body

    def headers(self, request: Request, body: Mapping[str, Any]) -> dict[str, str]:
        """As the client sends them, with what the model is to say."""
        pieces: list[Any] | None = None
        if request.emits is not None:
            pieces = dictated(request.emits, body)
        elif body.get("ignore_eos") or request.step in self._endless:
            pieces = endless(request.step, _limit(body), body)
        script = {} if pieces is None else {OUTPUT_HEADER: json.dumps(pieces)}
        return {**self.key, **request.headers, **script}

    async def _send_and_ask(
        self, request: Request, body: Mapping[str, Any], headers: Mapping[str, str], answer: Answer
    ) -> Answer:
        if self._is_timed(request.step, "store_lookup"):
            await self._time_lookup(request.step, body, headers)
        await send(self.proxy.url, request.method, request.path, body, headers, answer)
        if not answer.trouble:
            await self.ask_about(answer)
        return answer

    def _is_timed(self, step: str, metric: str) -> bool:
        timed = (
            (each.parameters.get("step"), each.parameters.get("metric"))
            for each in self.case.checks
        )
        return (step, metric) in timed

    async def _time_lookup(
        self, step: str, body: Mapping[str, Any], headers: Mapping[str, str]
    ) -> None:
        """Counting the tokens of a request with its parent takes so much longer than without, and that bounds what finding the
        parent takes.
        """
        orphan = {name: body[name] for name in body if name != PARENT}
        took: list[float] = []
        for counted in (orphan, body):
            answer = Answer(step, "/v1/responses/input_tokens", counted)
            await send(self.proxy.url, "POST", answer.path, counted, headers, answer)
            if answer.status != 200 or answer.ended_s is None:
                return
            took.append(answer.ended_s)
        self.evidence.seconds.setdefault(step, {})["store_lookup"] = max(took[1] - took[0], 0.0)

    async def ask_about(self, answer: Answer) -> None:
        """What the server tells of a response: its explanation and its prompt. Waits for one that is just being stored."""
        if not answer.response_id:
            return
        deadline = time.monotonic() + STORED_WAIT_S
        while time.monotonic() < deadline:
            answer.explained = await self.proxy.admin(f"responses/{answer.response_id}")
            if answer.explained is not None or answer.final.get("status") == "failed":
                break
            await asyncio.sleep(POLL_S)
        dump = await self.proxy.admin(f"debug/prompts/{answer.response_id}")
        answer.prompt = None if dump is None else tuple(dump["tokens"])

    async def again(self, step: str, body: Mapping[str, Any] | None = None) -> Answer:
        """A step's request once more, or another body in its place."""
        request = next(each for each in self.case.requests() if each.step == step)
        answer = Answer(
            step, request.path, self.evidence.answer(step).sent if body is None else body
        )
        headers = self.headers(request, answer.sent)
        await send(self.proxy.url, request.method, request.path, answer.sent, headers, answer)
        await self.ask_about(answer)
        return answer

    async def catch_up(self) -> None:
        """Wait for all requests that run."""
        await asyncio.gather(*self._running.values())
        self._running.clear()

    async def leave(self, step: str) -> None:
        """The client of a running request closes its connection."""
        task = self._running.pop(step)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    def runs(self, step: str) -> bool:
        return step in self._running and not self._running[step].done()

    def beside(self, work: Awaitable[Any]) -> None:
        """Do this while the steps go on; they wait for it at the end."""
        self._background.append(asyncio.ensure_future(work))

    # --- memory --------------------------------------------------------------------------------

    async def note_memory_at_start(self) -> None:
        """Beside state, once the longest prompt was computed: what computing takes is no state."""
        if not any(each.name == "host_memory_max" for each in self.case.checks):
            return
        longest = max(self.case.requests(), key=lambda each: len(json.dumps(each.body)))
        warm_up = Answer("warm-up", longest.path, self._body(longest))
        key = {"authorization": "Bearer warm-up"}
        await send(self.proxy.url, longest.method, warm_up.path, warm_up.sent, key, warm_up)
        now = self.proxy.memory_bytes() - await self.proxy.state_bytes()
        self.evidence.memory = Memory(now, now, self.proxy.budget_bytes)
        await self.proxy.drop_caches()

    def note_memory(self) -> None:
        if (memory := self.evidence.memory) is not None:
            memory.at_most = max(memory.at_most, self.proxy.memory_bytes())


def _limit(body: Mapping[str, Any]) -> int:
    return next((int(body[name]) for name in OUTPUT_LIMITS if name in body), 1000)


def wants_its_own_start(case: Case) -> bool:
    """Whether the first steps are about a server that isn't running yet."""
    first = case.steps[0]
    return isinstance(first, Control) and first.name == "install_fixture_db"


def shares_a_proxy(case: Case) -> bool:
    """Whether it can be played on a proxy where others were played: their API keys keep them apart."""
    touched = {each.name for each in case.controls()} - {"disconnect", "wait"}
    watched = {each.name for each in case.checks} & {"reported", "host_memory_max"}
    return not (options_of(case) or touched or watched)


def options_of(case: Case) -> dict[str, Any]:
    """Of its profile, and what its checks and controls rely on."""
    options = dict(case.profile)
    if steady := sorted(case.equivalences & STEADY):
        options["stabilise"] = ",".join(steady)
    if any(each.name == "park_session" for each in case.controls()):
        options["small_device"] = True
    return options
