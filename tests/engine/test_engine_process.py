"""The engine as its client sees it: a process at the end of a socket pair."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.api import (
    FRAME_HEADER,
    Anchor,
    AnchorKind,
    Cancel,
    ContinuationId,
    CountTokens,
    Delta,
    Drop,
    Dropped,
    Failed,
    Finished,
    FinishReason,
    Generate,
    Loading,
    Message,
    Prompt,
    Ready,
    RejectCode,
    Rejected,
    RequestId,
    Retention,
    Sampling,
    Shutdown,
    Snapshot,
    Started,
    TakeSnapshot,
    TenantKey,
    TokenCount,
)
from tests.engine.engine_process import EngineProcess, write_model

ANCHORS = (
    Anchor(AnchorKind.HEAD, 1),
    Anchor(AnchorKind.REWIND, 2, back=16),
    Anchor(AnchorKind.PROMPT_END, 2),
)


@pytest.fixture(scope="module")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("engine-model"))


def config(model_directory: Path, **changes: object) -> dict[str, object]:
    return {
        "model_dir": str(model_directory),
        "device_bytes": 64 << 20,
        "host_bytes": 64 << 20,
        "context_tokens": 2048,
        "threads": 1,
        "check_integrity": True,
        **changes,
    }


@pytest.fixture(scope="module")
def engine(model_directory: Path) -> Iterator[EngineProcess]:
    with EngineProcess(config(model_directory)) as process:
        events = process.until(Ready)
        assert all(isinstance(event, Loading) for event in events[:-1])
        yield process


def generate(name: str, *messages: Message, continuation: str = "c", **changes: object) -> Generate:
    plain = Generate(
        request_id=RequestId(name),
        tenant=TenantKey("t"),
        continuation=ContinuationId(continuation),
        prompt=Prompt(
            messages or (Message("system", "Be brief. " * 20), Message("user", "Hello."))
        ),
        retention=Retention(ContinuationId(continuation), 1, 1.0),
        max_tokens=12,
        anchors=ANCHORS,
    )
    return dataclasses.replace(plain, **changes)  # type: ignore[arg-type]


def test_ready_says_what_runs(model_directory: Path) -> None:
    with EngineProcess(config(model_directory)) as process:
        ready = process.until(Ready)[-1]
    assert (ready.context_tokens, ready.max_lanes, ready.device) == (2048, 4, "cpu")
    assert len(ready.weights_id) == 32
    assert ready.model == model_directory.name


def test_turn_after_turn(engine: EngineProcess) -> None:
    first = generate("turn1", continuation="turns")
    engine.send(first)
    events = engine.until(Finished)
    started = next(event for event in events if isinstance(event, Started))
    finished = events[-1]
    assert finished.output_tokens > 0
    assert finished.ledger is not None
    assert {info.kind for info in finished.checkpoints} == {
        AnchorKind.HEAD,
        AnchorKind.REWIND,
        AnchorKind.PROMPT_END,
        AnchorKind.TIP,
    }
    answer = Message("assistant", ledger=finished.ledger)
    second = generate(
        "turn2", *first.prompt.messages, answer, Message("user", "Again."), continuation="turns"
    )
    engine.send(second)
    events = engine.until(Finished)
    again = next(event for event in events if isinstance(event, Started))
    tip = max(info.position for info in finished.checkpoints)
    assert tip >= started.prompt_tokens + finished.output_tokens
    assert again.reused_tokens == tip
    assert again.source is not None
    assert again.source.kind is AnchorKind.TIP


def test_same_tokens_warm_and_cold(engine: EngineProcess) -> None:
    request = generate("cold", continuation="x", tenant=TenantKey("cold"))
    engine.send(request)
    cold = engine.until(Finished)
    engine.send(dataclasses.replace(request, request_id=RequestId("warm")))
    warm = engine.until(Finished)
    assert next(e for e in warm if isinstance(e, Started)).reused_tokens > 0
    assert cold[-1].ledger == warm[-1].ledger
    assert text(cold) == text(warm)


def text(events: list[object]) -> str:
    return "".join(event.text for event in events if isinstance(event, Delta))


def test_seed_decides_and_requests_differ_without(engine: EngineProcess) -> None:
    drawn = []
    for number, seed in enumerate((5, 5, None, None)):
        sampling = Sampling(temperature=1.5, seed=seed)
        engine.send(generate(f"seed{number}", sampling=sampling))
        drawn.append(engine.until(Finished)[-1].ledger)
    assert drawn[0] == drawn[1]
    assert drawn[2] != drawn[3]


def test_cancel(engine: EngineProcess) -> None:
    engine.send(generate("cancel", max_tokens=1500))
    engine.until(Delta)
    engine.send(Cancel(RequestId("cancel")))
    finished = engine.finish(RequestId("cancel"))
    assert isinstance(finished, Finished)
    assert finished.reason is FinishReason.CANCELLED
    assert 0 < finished.output_tokens < 1500
    engine.send(TakeSnapshot(RequestId("s")))
    assert engine.until(Snapshot)[-1].lanes == ()


def test_count_snapshot_and_drop(engine: EngineProcess) -> None:
    request = generate("count", continuation="counted", echo_tokens=True)
    engine.send(CountTokens(RequestId("n"), request.prompt), request)
    events = engine.until(Finished)
    count = next(event for event in events if isinstance(event, TokenCount))
    started = next(event for event in events if isinstance(event, Started))
    assert started.token_ids is not None
    assert count.tokens == started.prompt_tokens == len(started.token_ids)
    engine.send(TakeSnapshot(RequestId("s1")), Drop(ContinuationId("counted"), "done with"))
    events = engine.until(Dropped)
    snapshot = next(event for event in events if isinstance(event, Snapshot))
    held = next(each for each in snapshot.continuations if each.continuation == "counted")
    assert held.bytes > 0
    assert set(events[-1].checkpoints) == set(held.checkpoints)
    assert events[-1].reason == "done with"


def test_refusals_name_the_reason(engine: EngineProcess) -> None:
    long = generate("long", Message("user", "word " * 4000))
    engine.send(
        long,
        generate("bad", Message("nobody", "?")),
        CountTokens(RequestId("n"), Prompt((Message("nobody"),))),
    )
    refused = engine.finish(RequestId("bad"))
    assert isinstance(refused, Rejected)
    assert refused.code is RejectCode.INVALID_PROMPT
    assert engine.until(TokenCount)[-1].error
    engine.send(dataclasses.replace(long, request_id=RequestId("long2")))
    refused = engine.finish(RequestId("long2"))
    assert isinstance(refused, Rejected)
    assert refused.code is RejectCode.CONTEXT_LENGTH_EXCEEDED
    assert refused.needed is not None
    assert refused.needed > 2048 == refused.available


def test_ends_when_the_socket_closes(model_directory: Path) -> None:
    with EngineProcess(config(model_directory)) as process:
        process.until(Ready)
        process.send(generate("busy", max_tokens=1500))
        process.until(Delta)
        process.hang_up()
        assert process.process.wait(timeout=30) == 0


def test_shutdown_tells_those_in_flight(model_directory: Path) -> None:
    with EngineProcess(config(model_directory, max_lanes=1)) as process:
        process.until(Ready)
        process.send(generate("runs", max_tokens=1500), generate("waits"))
        process.until(Delta)
        process.send(Shutdown())
        ends = {}
        while (event := process.receive()) is not None:
            if isinstance(event, Failed | Rejected):
                ends[event.request_id] = event
        assert isinstance(ends[RequestId("runs")], Failed)
        assert isinstance(ends[RequestId("waits")], Rejected)
        assert process.process.wait(timeout=30) == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_dir": "/nowhere"}, "nowhere"),
        ({"device_bytes": 1 << 20}, "MiB short"),
        ({"context_tokens": 1 << 20}, "context_tokens"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_refuses_to_start_and_says_why(
    model_directory: Path, changes: dict[str, object], words: str
) -> None:
    with EngineProcess(config(model_directory, **changes)) as process:
        while process.receive() is not None:
            pass
        assert process.process.wait(timeout=30) == 1
        assert process.process.stderr is not None
        errors = process.process.stderr.read()
    assert words in errors
    assert "Traceback" not in errors


def test_a_broken_frame_ends_the_process_not_in_silence(model_directory: Path) -> None:
    with EngineProcess(config(model_directory)) as process:
        process.until(Ready)
        process.send_raw(FRAME_HEADER.pack(4) + b"\x80\x05XX")
        assert process.process.wait(timeout=30) is not None
        assert process.process.stderr is not None
        assert "reader" in process.process.stderr.read()
