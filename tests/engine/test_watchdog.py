"""A step that hangs ends the process, is told apart from idleness and from many short steps, and is named as the reason."""

import asyncio
import json
import socket
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
import torch

from engine.api import Delta, ExitStatus, Failed, Finished, Shutdown
from engine.inbox import Inbox
from engine.models.batch import CachePools, ForwardBatch
from engine.watchdog import LOOKS, Watchdog
from ninfer_proxy.backends import embedded
from ninfer_proxy.backends.embedded import EmbeddedBackend
from ninfer_proxy.backends.engine_process import EngineProcess
from tests.engine.engine_process import generate, small_config, write_model
from tests.engine.fake_model import FakeModel, oracle
from tests.engine.rig import Rig

PATIENCE_S = 60.0


class SleepingModel(FakeModel):
    """Sleeps in the forward pass that `hangs_in` counts down to, until it is woken."""

    def __init__(self, hangs_in: int) -> None:
        super().__init__()
        self.hangs_in = hangs_in
        self.asleep, self.wake = threading.Event(), threading.Event()

    def forward(self, batch: ForwardBatch, pools: CachePools) -> torch.Tensor:
        self.hangs_in -= 1
        if self.hangs_in == 0:
            self.asleep.set()
            assert self.wake.wait(PATIENCE_S)
        return super().forward(batch, pools)


def loop_on_a_thread(rig: Rig) -> tuple[Inbox, threading.Thread]:
    inbox: Inbox = SimpleQueue()
    thread = threading.Thread(target=rig.loop.run, args=(inbox,), daemon=True)
    thread.start()
    return inbox, thread


def test_a_model_that_sleeps_is_noticed() -> None:
    model, noticed = SleepingModel(hangs_in=3), threading.Event()
    rig = Rig(model=model)
    watchdog = Watchdog(0.2, noticed.set)
    rig.loop.watch = watchdog
    request = rig.submit([20] * 30, max_tokens=5)
    inbox, thread = loop_on_a_thread(rig)
    assert model.asleep.wait(PATIENCE_S)
    # Only now, so that the steps before it can't be what is noticed, however slow this machine is.
    watchdog.start()
    assert noticed.wait(PATIENCE_S)
    model.wake.set()
    inbox.put(Shutdown())
    thread.join(PATIENCE_S)
    assert rig.output(request) == oracle([20] * 30, 5)[: len(rig.output(request))]


def unexpected() -> None:
    raise AssertionError("nothing hangs")


def test_idleness_is_no_step() -> None:
    watchdog = Watchdog(1.0, unexpected)
    with watchdog:
        assert not any(watchdog.look() for _ in range(LOOKS))
    assert not any(watchdog.look() for _ in range(3 * LOOKS))


def test_many_steps_are_not_one() -> None:
    watchdog = Watchdog(1.0, unexpected)
    for _ in range(10):
        with watchdog:
            assert not any(watchdog.look() for _ in range(LOOKS))


def test_one_step_is_given_its_time() -> None:
    watchdog = Watchdog(1.0, unexpected)
    with watchdog:
        assert [watchdog.look() for _ in range(LOOKS + 1)] == [False] * LOOKS + [True]


def test_a_step_that_raises_has_ended() -> None:
    watchdog = Watchdog(1.0, unexpected)
    with pytest.raises(ValueError, match="broken"), watchdog:
        raise ValueError("broken")
    assert not any(watchdog.look() for _ in range(3 * LOOKS))


SLEEPS_IN_ITS_EIGHTH_STEP = """
import sys, time
from engine.models import qwen3_5
from engine.serve import main
forward, steps = qwen3_5.Qwen35Model.forward, iter(range(1, 1000))
def sleepy(self, batch, pools):
    if next(steps) == 8:
        time.sleep(1000)
    return forward(self, batch, pools)
qwen3_5.Qwen35Model.forward = sleepy
qwen3_5.Qwen35Model.recorded = lambda self, pools, rows, vocab_limit: None
sys.exit(main(sys.argv[1:]))
"""


async def spawn_sleepy(engine_config: Mapping[str, Any]) -> EngineProcess:
    ours, theirs = socket.socketpair()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", SLEEPS_IN_ITS_EIGHTH_STEP, "--fd", str(theirs.fileno())),
        *("--config-json", json.dumps(engine_config)),
        pass_fds=(theirs.fileno(),),
    )
    theirs.close()
    return EngineProcess(process, *await asyncio.open_connection(sock=ours))


async def test_its_requests_are_told_and_a_new_process_serves_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(embedded, "spawn", spawn_sleepy)
    settings = {**small_config(write_model(tmp_path)), "step_timeout_s": 3}
    backend = EmbeddedBackend(settings, clock=time.time)
    await backend.start()
    try:
        events = [each async for each in backend.generate(generate("hangs", max_tokens=50))]
        assert any(isinstance(each, Delta) for each in events)
        last = events[-1]
        assert isinstance(last, Failed)
        assert f"exit status {ExitStatus.HUNG}: a step did not end in time" in last.message
        events = [each async for each in backend.generate(generate("after", max_tokens=3))]
        assert isinstance(events[-1], Finished)
        assert backend.status().restarts == 1
    finally:
        await backend.stop()
    said = capfd.readouterr().err
    assert "a step has been running for 3 s (step_timeout_s): it hangs, and the engine ends" in said
    assert "sleepy" in said, "the log shows where it hangs"
