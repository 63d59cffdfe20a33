"""What survives `kill -9`: of the proxy, and of the engine, in mid-stream. Each time with the real processes."""

import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from real_service import RealService, real_service

WRITTEN_WITHIN_S = 60.0


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RealService]:
    with real_service(tmp_path / "data") as running:
        yield running


def acknowledged(service: RealService, count: int) -> list[Any]:
    """Responses whose completion a client has seen: a chain, each naming the one before."""
    client = service.client()
    seen: list[Any] = []
    for number in range(count):
        with client.responses.stream(
            model="demo",
            input=f"Message {number}: the key word is {number * 7}.",
            previous_response_id=seen[-1].id if seen else openai.omit,
            max_output_tokens=24,
        ) as stream:
            for event in stream:
                if event.type in ("response.completed", "response.incomplete"):
                    seen.append(event.response)
    assert len(seen) == count
    return seen


def open_stream(service: RealService) -> Iterator[str]:
    """Lines of a long answer that is being streamed."""
    body = {"input": "Tell me something long.", "stream": True, "temperature": 1.2, "seed": 5}
    with httpx.stream("POST", f"{service.url}/v1/responses", json=body, timeout=60) as answer:
        yield from answer.iter_lines()


def until_output(lines: Iterator[str]) -> None:
    assert any("delta" in line for line in lines)


def assert_continuable(service: RealService, responses: list[Any]) -> None:
    client = service.client()
    for response in responses:
        following = client.responses.create(
            model="demo",
            input="And what was the key word?",
            previous_response_id=response.id,
            max_output_tokens=8,
        )
        assert following.usage is not None
        assert following.usage.input_tokens > (response.usage.input_tokens)


def assert_sound(service: RealService) -> None:
    with sqlite3.connect(service.data_dir / "ninfer-proxy.sqlite3") as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_kill_of_the_proxy_in_mid_stream(service: RealService) -> None:
    seen = acknowledged(service, 3)
    engine = service.engine_pid()
    lines = open_stream(service)
    until_output(lines)
    service.kill()
    with pytest.raises(httpx.TransportError):
        list(lines)
    assert_sound(service)
    service.start()
    assert service.engine_pid() != engine
    assert_gone(engine)
    assert_continuable(service, seen)
    assert_sound(service)


def assert_gone(pid: int) -> None:
    """An engine whose proxy died ends by itself; it may take a step until it notices."""
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
            return
        time.sleep(0.1)
    raise AssertionError(f"engine {pid} is still there")


def test_kill_of_the_engine_in_mid_stream(service: RealService) -> None:
    seen = acknowledged(service, 3)
    lines = open_stream(service)
    until_output(lines)
    os.kill(service.engine_pid(), signal.SIGKILL)
    rest = list(lines)
    assert any("response.failed" in line for line in rest)
    assert any("SIGKILL" in line for line in rest)
    service.wait_ready()
    assert service.health()["engine"]["restarts"] == 1
    assert_continuable(service, seen)
    assert_sound(service)
    (slot,) = service.slots(None)[:1]
    assert slot["class"] in ("recent", "running")


def test_a_request_during_a_restart_waits_for_the_engine(service: RealService) -> None:
    os.kill(service.engine_pid(), signal.SIGKILL)
    response = service.client(timeout=60).responses.create(
        model="demo", input="Hello?", max_output_tokens=8
    )
    assert response.status in ("completed", "incomplete")


def long_turn(service: RealService) -> Any:
    """Long enough, so that computing it again isn't a mere rest."""
    text = " ".join(f"word{number}" for number in range(400))
    return service.client().responses.create(model="demo", input=text, max_output_tokens=8)


def decision_of_next(service: RealService, first: Any) -> str:
    raw = service.client().responses.with_raw_response.create(
        model="demo", input="Go on.", previous_response_id=first.id, max_output_tokens=8
    )
    return str(raw.headers["x-ninfer-decision"])


def wait_written(service: RealService) -> None:
    """Until all of the only slot's checkpoints are on disk."""
    deadline = time.monotonic() + WRITTEN_WITHIN_S
    while True:
        (slot,) = service.slots()
        written = service.admin("top")["status"]["counters"]["disk_checkpoints_written"]
        if written >= len(slot["checkpoints"]) > 0:
            return
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("victim", ["engine", "proxy"])
def test_state_survives_a_kill(service: RealService, victim: str) -> None:
    first = long_turn(service)
    wait_written(service)
    if victim == "engine":
        os.kill(service.engine_pid(), signal.SIGKILL)
    else:
        service.kill()
        service.start()
    decision = decision_of_next(service, first)
    assert decision.startswith("cache_hit"), decision
    assert "disk" in decision
    (slot,) = service.slots()
    assert len(slot["checkpoints"]) > 1


def test_state_survives_an_orderly_stop(service: RealService) -> None:
    """Right behind the answer: what was not yet on disk is written on the way out."""
    first = long_turn(service)
    service.stop()
    service.start()
    assert decision_of_next(service, first).startswith("cache_hit")


def test_what_was_lost_is_explained(tmp_path: Path) -> None:
    with real_service(tmp_path / "data", "--disk-bytes=0") as service:
        first = long_turn(service)
        os.kill(service.engine_pid(), signal.SIGKILL)
        assert decision_of_next(service, first).startswith("engine_restarted")


def test_an_engine_that_hangs_is_told_by_health_and_ended_with_the_service(tmp_path: Path) -> None:
    with real_service(tmp_path / "data", NINFER_PROXY_ENGINE_SILENCE_S="2") as service:
        engine = service.engine_pid()
        os.kill(engine, signal.SIGSTOP)
        until_health(service, "degraded")
        assert "no sign of life" in service.health()["reasons"][0]
        os.kill(engine, signal.SIGCONT)
        until_health(service, "ok")
        os.kill(engine, signal.SIGSTOP)
    assert_gone(engine)


def until_health(service: RealService, status: str) -> None:
    deadline = time.monotonic() + 60
    while service.health().get("status") != status:
        assert time.monotonic() < deadline, service.log.read_text()
        time.sleep(0.1)
