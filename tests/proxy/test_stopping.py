"""Stopping takes no longer than its budget, whatever hangs; a second Ctrl-C ends at once. The real process, the scripted backend."""

import json
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx

from ninfer_proxy.stopping import Stopping

HERE = Path(__file__).parent
BUDGET_S = 6.0
PATIENCE_S = 60.0
UNBOUNDED = 4.0
"""Times the budget: what hangs would take far longer, a busy machine doesn't."""


class Service:
    def __init__(self, data_dir: Path, *hanging: str, budget_s: float = BUDGET_S) -> None:
        self.data_dir = data_dir
        self.log = data_dir.with_suffix(".log")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, HERE / "scripted_service.py", data_dir, str(budget_s), *hanging],
                stdout=log,
                stderr=log,
                cwd=HERE.parents[1],
                env={"PYTHONPATH": ".", "PYTHONUNBUFFERED": "1", "HOME": str(data_dir)},
            )
        (self.url,) = self.said(r"Serving .* at (\S+)/v1")

    def said(self, pattern: str) -> tuple[str, ...]:
        """The groups of what the service says, sooner or later."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := re.search(pattern, self.log.read_text())) is None:
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)
        return found.groups()

    def stopped(self, number: signal.Signals, exit_code: int) -> None:
        """Send the signal; the service ends, and in time."""
        began = time.monotonic()
        self.process.send_signal(number)
        assert self.process.wait(PATIENCE_S) == exit_code, self.log.read_text()
        assert time.monotonic() - began < UNBOUNDED * BUDGET_S

    @contextmanager
    def stream(self, words: str) -> Iterator[Iterator[dict[str, Any]]]:
        """The events of an answer, as they come."""
        body = {"input": words, "stream": True}
        client = httpx.Client(timeout=PATIENCE_S, verify=False, trust_env=False)
        with client, client.stream("POST", f"{self.url}/v1/responses", json=body) as answer:
            lines = (line for line in answer.iter_lines() if line.startswith("data: {"))
            yield (json.loads(line[6:]) for line in lines)

    def statuses(self) -> list[str]:
        """Of the responses that were stored."""
        assert not any(log.stat().st_size for log in self.data_dir.glob("*-wal"))
        with closing(sqlite3.connect(self.data_dir / "ninfer-proxy.sqlite3")) as database:
            return [status for (status,) in database.execute("SELECT status FROM responses")]


@contextmanager
def service(data_dir: Path, *hanging: str, budget_s: float = BUDGET_S) -> Iterator[Service]:
    running = Service(data_dir, *hanging, budget_s=budget_s)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()


def until_output(events: Iterator[dict[str, Any]]) -> None:
    assert any(event["type"] == "response.output_text.delta" for event in events)


def test_an_idle_service_ends_at_once(tmp_path: Path) -> None:
    with service(tmp_path / "data", budget_s=600.0) as running:
        running.stopped(signal.SIGTERM, 0)


def test_a_running_turn_is_called_off_told_and_stored(tmp_path: Path) -> None:
    with service(tmp_path / "data") as running:
        with running.stream("hang") as events:
            until_output(events)
            running.stopped(signal.SIGTERM, 0)
            assert [event["type"] for event in events][-1] == "response.failed"
        running.said("waiting for 1 request, at most 2 s")
        assert running.statuses() == ["cancelled"]
        assert "Traceback" not in running.log.read_text()


def test_an_engine_that_hangs_is_not_waited_for_longer_than_the_budget(tmp_path: Path) -> None:
    with service(tmp_path / "data", "engine") as running:
        with running.stream("hang") as events:
            until_output(events)
            running.stopped(signal.SIGTERM, 0)
        running.said("turns still run")
        running.said("waiting for the engine")
        running.said("the engine did not end in time")
        assert running.statuses() == []


def test_a_store_that_hangs_does_not_hold_the_process(tmp_path: Path) -> None:
    with service(tmp_path / "data", "store") as running:
        running.stopped(signal.SIGTERM, 1)
        running.said("the store did not end in time")


def test_a_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    with service(tmp_path / "data", "engine", budget_s=600.0) as running:
        with running.stream("hang") as events:
            until_output(events)
            running.process.send_signal(signal.SIGINT)
            running.said("waiting for 1 request")
            running.stopped(signal.SIGINT, 130)
        running.said("the engine was killed")


def test_shares_are_counted_from_the_first_signal() -> None:
    stopping = Stopping(1000.0)
    assert 0 < stopping.left_s(0.5) <= 500 < stopping.left_s() <= 1000
    assert Stopping(0.0).left_s() == 0


async def test_what_ends_with_an_error_has_ended(caplog: Any) -> None:
    async def broken() -> None:
        raise OSError("the disk is gone")

    assert await Stopping(10.0).finish("the store", broken())
    assert "the disk is gone" in caplog.text
