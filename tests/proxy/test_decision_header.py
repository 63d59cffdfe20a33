"""What `x-ninfer-decision` can tell when a stream begins: the engine's answer if it comes in time, else that the turn queues."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from fake_turns import build
from live_server import serving

from engine.api import Generate
from ninfer_proxy.app import turn_settings
from ninfer_proxy.backends.scripted import Performance, ScriptedBackend, text
from ninfer_proxy.config import load
from ninfer_proxy.metrics import Metrics
from ninfer_proxy.planning.policy import Policy
from ninfer_proxy.store.store import Store
from ninfer_proxy.turn.in_flight import InFlight
from ninfer_proxy.turn.runner import TurnRunner, TurnSettings

AGES_S = 1000.0
FORMATS = {
    "/v1/responses": {"input": "x", "stream": True},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}], "stream": True},
}


@asynccontextmanager
async def client_of(
    data_dir: Path, queue_s: float, decide_wait_s: float
) -> AsyncIterator[httpx.AsyncClient]:
    def script(_: Generate) -> Performance:
        return Performance((text("ok"),), queue_s=queue_s)

    store = await Store.open(data_dir, clock=lambda: 1000.0)
    numbers = itertools.count(1)
    turns = TurnRunner(
        store,
        ScriptedBackend(script),
        TurnSettings(Policy(), "demo", True, decide_wait_s),
        Metrics(),
        InFlight(),
        clock=lambda: 1000.0,
        new_id=lambda prefix: f"{prefix}_{next(numbers)}",
    )
    try:
        async with (
            serving(build(turns)) as port,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=AGES_S) as client,
        ):
            yield client
    finally:
        await store.close()


@pytest.mark.parametrize("path", FORMATS)
async def test_a_stream_waits_for_a_decision_that_comes_soon(tmp_path: Path, path: str) -> None:
    async with client_of(tmp_path, queue_s=0.1, decide_wait_s=AGES_S) as client:
        answer = await client.post(path, json=FORMATS[path])
        told = answer.headers["x-ninfer-decision"].split("; ")
        assert told[:4] == ["new_conversation", "slot=0", "conversation=conv_1", "match=new"]
        assert told[4] == "reused=0"


@pytest.mark.parametrize("path", FORMATS)
async def test_a_stream_begins_with_what_is_known_of_a_turn_that_queues(
    tmp_path: Path, path: str
) -> None:
    async with (
        client_of(tmp_path, queue_s=AGES_S, decide_wait_s=0.1) as client,
        client.stream("POST", path, json=FORMATS[path]) as answer,
    ):
        assert answer.status_code == 200
        assert answer.headers["x-ninfer-decision"] == (
            "queued; slot=0; conversation=conv_1; match=new"
        )


async def test_an_answer_that_isnt_streamed_always_tells_the_decision(tmp_path: Path) -> None:
    async with client_of(tmp_path, queue_s=0.3, decide_wait_s=0.0) as client:
        answer = await client.post("/v1/responses", json={"input": "x"})
        assert answer.headers["x-ninfer-decision"].startswith("new_conversation; slot=0; ")


@pytest.mark.parametrize(("keep_alive_s", "expected"), [(5.0, 1.0), (0.2, 0.2)])
def test_the_wait_is_no_longer_than_any_other_silence(keep_alive_s: float, expected: float) -> None:
    config = load(None, {}, {"server.keep_alive_s": keep_alive_s})
    assert turn_settings(config).decide_wait_s == expected
