"""A real engine process for tests, at the other end of a socket pair, and a tiny model directory it can load."""

import dataclasses
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from engine.api import (
    FRAME_HEADER,
    Anchor,
    AnchorKind,
    Command,
    ContinuationId,
    Event,
    Failed,
    Finished,
    Generate,
    Message,
    Prompt,
    Rejected,
    RequestId,
    Retention,
    TenantKey,
    decode_payload,
    encode_frame,
)
from engine.serve import main
from tests.engine.text.textkit import TEMPLATE, train_tokenizer
from tests.engine.tiny_weights import TEXT_CONFIG, lively_tensors, write_config

ANCHORS = (
    Anchor(AnchorKind.HEAD, 1),
    Anchor(AnchorKind.REWIND, 2, back=16),
    Anchor(AnchorKind.PROMPT_END, 2),
)


def write_model(directory: Path) -> Path:
    """Random weights, a trained tokenizer and the bundled template."""
    tokenizer = train_tokenizer()
    config: dict[str, Any] = {**TEXT_CONFIG, "vocab_size": tokenizer.get_vocab_size() + 8}
    write_config(directory, config)
    save_file(lively_tensors(config, seed=3), directory / "model.safetensors")
    tokenizer.save(str(directory / "tokenizer.json"))
    shutil.copy(TEMPLATE, directory / "chat_template.jinja")
    ends = [tokenizer.token_to_id("<|im_end|>")]
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    return directory


def small_config(model_directory: Path, **changes: object) -> dict[str, Any]:
    return {
        "model_dir": str(model_directory),
        "device_bytes": 64 << 20,
        "host_bytes": 64 << 20,
        "context_tokens": 2048,
        "threads": 1,
        "check_integrity": True,
        **changes,
    }


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


class Client:
    """The client's end of the socket pair. `receive` waits at most 100 s."""

    def __init__(self) -> None:
        self._socket, self.theirs = socket.socketpair()
        self._socket.settimeout(100)
        self._incoming = self._socket.makefile("rb")

    def hang_up(self) -> None:
        self._incoming.close()
        self._socket.close()

    def send(self, *commands: Command) -> None:
        self._socket.sendall(b"".join(map(encode_frame, commands)))

    def send_raw(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> Event | None:
        """The next event; None when the engine has closed its end."""
        header = self._incoming.read(FRAME_HEADER.size)
        if len(header) < FRAME_HEADER.size:
            return None
        event: Event = decode_payload(self._incoming.read(*FRAME_HEADER.unpack(header)))
        return event

    def until(self, kind: type | tuple[type, ...], request: RequestId | None = None) -> list[Any]:
        """Events up to the first of `kind` (of `request`, if named)."""
        events = []
        while True:
            event = self.receive()
            assert event is not None, events
            events.append(event)
            named = request is None or getattr(event, "request_id", None) == request
            if isinstance(event, kind) and named:
                return events

    def finish(self, request: RequestId) -> Finished | Rejected | Failed:
        """The last event of a request."""
        while True:
            event = self.receive()
            assert event is not None
            ends = isinstance(event, Finished | Rejected | Failed)
            if ends and event.request_id == request:  # type: ignore[union-attr]
                return event  # type: ignore[return-value]


class EngineProcess(Client):
    """Context manager around a real process; leaving it hangs up and takes the exit status."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        command = [sys.executable, "-m", "engine.serve", "--fd", str(self.theirs.fileno())]
        self.process = subprocess.Popen(
            [*command, "--config-json", json.dumps(config)],
            pass_fds=(self.theirs.fileno(),),
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        self.theirs.close()

    def __enter__(self) -> "EngineProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.hang_up()
        try:
            status = self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        assert status == 0


class EngineThread(Client):
    """The same entry point on a thread of this process: starting a process costs seconds."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        arguments = ["--fd", str(self.theirs.detach()), "--config-json", json.dumps(config)]
        self._status: list[int] = []
        self._thread = threading.Thread(target=lambda: self._status.append(main(arguments)))
        self._thread.start()

    def __enter__(self) -> "EngineThread":
        return self

    def __exit__(self, *_: object) -> None:
        self.hang_up()
        self.wait()

    def wait(self) -> int:
        """The exit status."""
        self._thread.join(timeout=60)
        assert self._status, "the engine doesn't end"
        return self._status[0]
