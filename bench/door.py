"""An engine process seen through its door, with the time at which each event came. Knows the door's values; nothing of what is measured.

The bench speaks to the engine as the proxy does: a process at the other end of a socket pair, started with the same environment.
"""

import dataclasses
import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, cast

from engine.api import (
    FRAME_HEADER,
    Anchor,
    Command,
    ContinuationId,
    CountTokens,
    Event,
    Failed,
    Finished,
    Generate,
    Progress,
    Prompt,
    Ready,
    Rejected,
    RequestId,
    Retention,
    Snapshot,
    Started,
    TakeSnapshot,
    TenantKey,
    TokenCount,
    decode_payload,
    encode_frame,
)

PATIENCE_S = 600.0
ENDLESS = "bench.endless_engine"
"""The engine that never ends an answer by itself: rows want answers of a given length."""
PLAIN = "engine.serve"


class EngineEnded(RuntimeError):
    """The process at the other end is gone."""


class EngineSilent(RuntimeError):
    """Nothing came for as long as was to be waited."""


@dataclasses.dataclass(slots=True)
class Answer:
    """One request, with times on this side's clock (seconds): `sent`, `first` token, `ended`. `tokens` are the sampled ones;
    `refusal` is how it ended when it wasn't by Finished.
    """

    generate: Generate
    sent: float
    first: float = 0.0
    ended: float = 0.0
    started: Started | None = None
    prompt_done: int = 0
    tokens: tuple[int, ...] = ()
    finished: Finished | None = None
    refusal: Rejected | Failed | None = None

    @property
    def wait(self) -> float:
        """Time to first token, seconds."""
        return self.first - self.sent

    @property
    def rate(self) -> float:
        """Tokens a second behind the first."""
        return (len(self.tokens) - 1) / (self.ended - self.first)


class EngineDoor:
    """A running engine. Not for several threads. Whatever waits for events raises EngineEnded or EngineSilent, and RuntimeError
    when a request that must succeed is refused or fails. `heard` is told each event; `log` is a file descriptor for what the
    engine writes to its standard error.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        module: str = ENDLESS,
        patience_s: float = PATIENCE_S,
        heard: Callable[[Event], None] = lambda _: None,
        log: int = subprocess.DEVNULL,
    ) -> None:
        self._patience_s = patience_s
        self._heard = heard
        ours, theirs = socket.socketpair()
        ours.settimeout(patience_s)
        self._socket = ours
        self._incoming = ours.makefile("rb")
        self._numbers = count(1)
        self._open: dict[RequestId, Answer] = {}
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", module, "--fd", str(theirs.fileno())),
                *("--config-json", json.dumps(dict(config))),
            ],
            pass_fds=(theirs.fileno(),),
            stderr=log,
            env={"OMP_WAIT_POLICY": "passive", **os.environ},
        )
        theirs.close()
        self.ready: Ready = self._until(Ready)

    def close(self) -> None:
        self._incoming.close()
        self._socket.close()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def send(self, command: Command) -> None:
        try:
            self._socket.sendall(encode_frame(command))
        except ConnectionError:
            raise EngineEnded("the engine has gone") from None

    def receive(self) -> Event:
        try:
            header = self._incoming.read(FRAME_HEADER.size)
            if len(header) == FRAME_HEADER.size:
                event: Event = decode_payload(self._incoming.read(*FRAME_HEADER.unpack(header)))
                self._heard(event)
                return event
        except TimeoutError:
            raise EngineSilent(f"the engine was silent for {self._patience_s:.0f} s") from None
        except ConnectionError:
            pass
        raise EngineEnded(f"the engine ended with status {self.process.wait()}")

    def begin(
        self,
        prompt: Prompt,
        tokens: int,
        tenant: str,
        continuation: str | None = None,
        anchors: Sequence[Anchor] = (),
        priority: int = 1,
        save_tip: bool = False,
    ) -> Answer:
        """Sends a request for `tokens` greedy tokens; `take` sees to its events."""
        number = next(self._numbers)
        name = ContinuationId(continuation or f"c{number}")
        generate = Generate(
            request_id=RequestId(f"r{number}"),
            tenant=TenantKey(tenant),
            continuation=name,
            prompt=prompt,
            retention=Retention(name, priority, float(number)),
            max_tokens=tokens,
            anchors=tuple(anchors),
            save_tip=save_tip,
            echo_tokens=True,
        )
        answer = Answer(generate, time.perf_counter())
        self._open[generate.request_id] = answer
        self.send(generate)
        return answer

    def take(self) -> Answer | None:
        """Waits for one event; the answer it belongs to, if any."""
        event = self.receive()
        now = time.perf_counter()
        answer = self._open.get(getattr(event, "request_id", RequestId("")))
        if answer is None:
            return None
        match event:
            case Started():
                answer.started = event
            case Progress():
                answer.prompt_done = event.prompt_tokens_done
                assert answer.started is not None
                if not answer.first and event.prompt_tokens_done >= answer.started.prompt_tokens:
                    answer.first = now
            case Finished():
                answer.finished, answer.ended = event, now
                answer.tokens = sampled(answer)
                del self._open[answer.generate.request_id]
            case Rejected() | Failed():
                answer.refusal, answer.ended = event, now
                del self._open[answer.generate.request_id]
        return answer

    def finish(self, *answers: Answer) -> None:
        """Takes events until all of `answers` have ended, as they must, by themselves."""
        while any(not answer.ended for answer in answers):
            self.take()
        for answer in answers:
            if answer.refusal is not None:
                raise RuntimeError(f"a request ended badly: {answer.refusal.message}")

    def ask(self, prompt: Prompt, tokens: int, tenant: str, **options: Any) -> Answer:
        """One request, from its sending to its end."""
        answer = self.begin(prompt, tokens, tenant, **options)
        self.finish(answer)
        return answer

    def rendering_s(self, prompt: Prompt) -> float:
        """How long the engine takes to turn the prompt into tokens and to answer, computing nothing."""
        begun = time.perf_counter()
        self.send(CountTokens(RequestId("count"), prompt))
        self._until(TokenCount)
        return time.perf_counter() - begun

    def snapshot(self) -> Snapshot:
        """The engine as it is once all that was sent before has reached it."""
        request = RequestId(f"snapshot{next(self._numbers)}")
        self.send(TakeSnapshot(request))
        while (snapshot := self._until(Snapshot)).request_id != request:
            pass
        return cast(Snapshot, snapshot)

    def resident_bytes(self) -> int:
        """Memory of the process that is in main memory."""
        return resident_bytes(Path(f"/proc/{self.process.pid}/status").read_text())

    def _until(self, kind: type[Any]) -> Any:
        """The next event of that kind; what comes before it is not looked at."""
        while not isinstance(event := self.receive(), kind):
            pass
        return event


def resident_bytes(status: str) -> int:
    """Of a process, from the text of its /proc/PID/status."""
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def sampled(answer: Answer) -> tuple[int, ...]:
    """The tokens of an ended answer, without the generation opener before and the closing tokens behind them."""
    started, finished = answer.started, answer.finished
    assert finished is not None
    if finished.ledger is None:  # called off before there was any
        return ()
    assert started is not None
    assert started.token_ids is not None
    turn = struct.unpack(f"<{len(finished.ledger.tokens) // 4}I", finished.ledger.tokens)
    prompt = started.token_ids
    longest = min(len(prompt) - started.borders[-1], len(turn))
    opener = next(
        size for size in range(longest, -1, -1) if turn[:size] == prompt[len(prompt) - size :]
    )
    return turn[opener : opener + finished.output_tokens]


@contextmanager
def engine(config: Mapping[str, Any], module: str = ENDLESS) -> Iterator[EngineDoor]:
    door = EngineDoor(config, module)
    try:
        yield door
    finally:
        door.close()
