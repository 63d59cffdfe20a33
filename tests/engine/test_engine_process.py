"""The engine as its client sees it: a process at the end of a socket pair."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.api import (
    FRAME_HEADER,
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
    Loading,
    Message,
    Prepare,
    Prepared,
    PrepareOutcome,
    Prompt,
    Ready,
    RejectCode,
    Rejected,
    RequestId,
    Sampling,
    Shutdown,
    Snapshot,
    Started,
    TakeSnapshot,
    TenantKey,
    TokenCount,
)
from tests.engine.engine_process import (
    EngineProcess,
    EngineThread,
    generate,
    small_config,
    write_model,
)


@pytest.fixture(scope="module")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("engine-model"))


@pytest.fixture(scope="module")
def engine(model_directory: Path) -> Iterator[EngineProcess]:
    """One real process; that it ends with status 0 when its client hangs up is checked at the end."""
    with EngineProcess(small_config(model_directory)) as process:
        *loading, ready = process.until(Ready)
        assert loading
        assert all(isinstance(event, Loading) for event in loading)
        assert (ready.context_tokens, ready.max_lanes, ready.device) == (2048, 4, "cpu")
        assert len(ready.weights_id) == 32
        assert ready.model == model_directory.name
        yield process


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


def test_a_prompt_prepared_ahead_is_resumed_before_its_opener(engine: EngineProcess) -> None:
    request = generate("meant", continuation="ahead", tenant=TenantKey("ahead"))
    prepare = Prepare(
        RequestId("prepare"),
        request.tenant,
        request.continuation,
        request.prompt,
        request.retention,
        request.anchors,
    )
    engine.send(prepare)
    (*_, prepared) = engine.until(Prepared)
    assert (prepared.request_id, prepared.outcome) == ("prepare", PrepareOutcome.DONE)
    assert {info.kind for info in prepared.checkpoints} == {
        AnchorKind.HEAD,
        AnchorKind.REWIND,
        AnchorKind.PROMPT_END,
    }
    engine.send(request)
    warm = engine.until(Finished)
    started = next(event for event in warm if isinstance(event, Started))
    assert started.reused_tokens == started.borders[-1] == prepared.computed_tokens
    engine.send(dataclasses.replace(request, request_id=RequestId("cold"), tenant=TenantKey("u")))
    assert text(engine.until(Finished)) == text(warm)


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


def test_a_cancel_overtakes_a_long_prompt(engine: EngineProcess) -> None:
    """Rendering half a million characters takes far longer than the step at whose end a Cancel is heard."""
    numbers = " ".join(map(str, range(80_000)))
    engine.send(generate("busy", max_tokens=1500))
    engine.until(Delta)
    engine.send(generate("huge", Message("user", numbers)), Cancel(RequestId("busy")))
    *_, first = engine.until((Finished, Rejected))
    assert (first.request_id, first.reason) == ("busy", FinishReason.CANCELLED)
    assert isinstance(engine.finish(RequestId("huge")), Rejected)


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
    engine.send(long, generate("bad", Message("nobody", "?")))
    refused = engine.finish(RequestId("bad"))
    assert isinstance(refused, Rejected)
    assert refused.code is RejectCode.INVALID_PROMPT
    engine.send(CountTokens(RequestId("n"), Prompt((Message("nobody"),))))
    assert engine.until(TokenCount)[-1].error
    engine.send(dataclasses.replace(long, request_id=RequestId("long2")))
    refused = engine.finish(RequestId("long2"))
    assert isinstance(refused, Rejected)
    assert refused.code is RejectCode.CONTEXT_LENGTH_EXCEEDED
    assert refused.needed is not None
    assert refused.needed > 2048 == refused.available


def test_ends_in_the_middle_of_work_when_the_client_hangs_up(model_directory: Path) -> None:
    with EngineThread(small_config(model_directory)) as engine:
        engine.until(Ready)
        engine.send(generate("busy", max_tokens=1500))
        engine.until(Delta)
        engine.hang_up()
        assert engine.wait() == 0


def test_shutdown_tells_those_in_flight(model_directory: Path) -> None:
    with EngineThread(small_config(model_directory, max_lanes=1)) as engine:
        engine.until(Ready)
        engine.send(generate("runs", max_tokens=1500), generate("waits"))
        engine.until(Delta)
        engine.send(Shutdown())
        ends = {}
        while (event := engine.receive()) is not None:
            if isinstance(event, Failed | Rejected):
                ends[event.request_id] = event
        assert isinstance(ends[RequestId("runs")], Failed)
        assert isinstance(ends[RequestId("waits")], Rejected)
        assert engine.wait() == 0


def test_a_broken_frame_ends_the_engine_and_is_logged(
    model_directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with EngineThread(small_config(model_directory)) as engine:
        engine.until(Ready)
        engine.send_raw(FRAME_HEADER.pack(4) + b"\x80\x05XX")
        engine.wait()
    assert "the reader stops" in caplog.text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_dir": "/nowhere"}, "nowhere"),
        ({"device_bytes": 1 << 20}, "MiB short"),
        ({"device_bytes": 1 << 50}, "bytes for device_bytes and lanes"),
        ({"host_bytes": 1 << 50}, "bytes for host_bytes"),
        ({"context_tokens": 1 << 20}, "context_tokens"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_refuses_to_start_and_says_why(
    model_directory: Path,
    changes: dict[str, object],
    words: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with EngineThread(small_config(model_directory, **changes)) as engine:
        while engine.receive() is not None:
            pass
        assert engine.wait() == 1
    assert words in caplog.text
    assert "Traceback" not in caplog.text
