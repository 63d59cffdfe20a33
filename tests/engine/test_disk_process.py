"""The disk tier as the engine's client sees it: real processes, the worker's thread, an orderly end and a kill."""

import dataclasses
import resource
import time
from pathlib import Path

import pytest

from engine.api import (
    CheckpointInfo,
    Finished,
    Generate,
    Message,
    Ready,
    RequestId,
    Shutdown,
    Snapshot,
    Started,
    TakeSnapshot,
    TenantKey,
    Tier,
)
from tests.engine.engine_process import (
    Client,
    EngineProcess,
    EngineThread,
    generate,
    small_config,
    write_model,
)

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("engine-model"))


def settings(model_directory: Path, disk: Path) -> dict[str, object]:
    return small_config(model_directory, disk_dir=str(disk), disk_bytes=64 << 20)


def first_turn(client: Client) -> Finished:
    client.send(generate("first"))
    finished = client.until(Finished)[-1]
    assert isinstance(finished, Finished)
    return finished


def second_turn(client: Client, first: Finished) -> Started:
    """Says the same as for a tenant of whom nothing is stored."""
    answer = Message("assistant", ledger=first.ledger)
    messages = (*generate("first").prompt.messages, answer, Message("user", "Again."))
    request = generate("second", *messages)
    started, finished = ends_of(client, request)
    stranger = dataclasses.replace(request, request_id=RequestId("cold"), tenant=TenantKey("cold"))
    cold, expected = ends_of(client, stranger)
    assert cold.reused_tokens == 0
    assert finished.ledger == expected.ledger
    return started


def ends_of(client: Client, request: Generate) -> tuple[Started, Finished]:
    client.send(request)
    events = client.until(Finished)
    return next(event for event in events if isinstance(event, Started)), events[-1]


def snapshot(client: Client) -> Snapshot:
    client.send(TakeSnapshot(RequestId("s")))
    found = client.until(Snapshot)[-1]
    assert isinstance(found, Snapshot)
    return found


def wait_written(client: Client, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while snapshot(client).counters["disk_checkpoints_written"] < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def held(ready: Ready) -> list[CheckpointInfo]:
    return [info for each in ready.continuations for info in each.checkpoints]


def test_a_restart_after_a_kill(model_directory: Path, tmp_path: Path) -> None:
    client = EngineProcess(settings(model_directory, tmp_path))
    try:
        assert client.until(Ready)[-1].continuations == ()
        first = first_turn(client)
        wait_written(client, len(first.checkpoints))
    finally:
        client.process.kill()
        client.process.wait()
        client.hang_up()
    with EngineThread(settings(model_directory, tmp_path)) as again:
        ready = again.until(Ready)[-1]
        assert {(i.checkpoint, i.kind, i.position) for i in held(ready)} == {
            (i.checkpoint, i.kind, i.position) for i in first.checkpoints
        }
        assert {info.tier for info in held(ready)} == {Tier.DISK}
        started = second_turn(again, first)
        assert started.reused_tokens == max(info.position for info in first.checkpoints)
        assert started.source is not None
        assert started.source.tier is Tier.DISK


def test_a_restart_after_an_orderly_end_that_wrote_what_was_left(
    model_directory: Path, tmp_path: Path
) -> None:
    """The end comes right behind the turn: nothing can have been written before."""
    with EngineThread(settings(model_directory, tmp_path)) as client:
        client.until(Ready)
        first = first_turn(client)
        client.send(Shutdown())
        assert client.wait() == 0
    with EngineThread(settings(model_directory, tmp_path)) as again:
        assert len(held(again.until(Ready)[-1])) == len(first.checkpoints)
        assert second_turn(again, first).reused_tokens > 0


def test_a_full_disk_from_the_first_request_on(model_directory: Path, tmp_path: Path) -> None:
    """No file of the process can grow, wherever it is: neither the tier's nor what a library would keep for itself."""
    with EngineProcess(settings(model_directory, tmp_path)) as client:
        client.until(Ready)
        no_more = (0, resource.RLIM_INFINITY)
        resource.prlimit(client.process.pid, resource.RLIMIT_FSIZE, no_more)
        assert second_turn(client, first_turn(client)).reused_tokens > 0
        deadline = time.monotonic() + PATIENCE_S
        while not (tier := snapshot(client).tiers[-1]).note:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert tier.note == "not written to: File too large"
