"""The real engine, many chats at a time: owns its process and the socket, knows nothing of what is asked."""

from __future__ import annotations

import itertools
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engine.api import (
    FRAME_HEADER,
    Command,
    ContinuationId,
    CountTokens,
    Delta,
    DeltaKind,
    Event,
    Failed,
    Finished,
    FinishReason,
    Generate,
    LedgerEntry,
    Message,
    Prompt,
    Ready,
    Rejected,
    RequestId,
    Retention,
    Shutdown,
    TenantKey,
    TokenCount,
    ToolCall,
    decode_payload,
    encode_frame,
)
from engine.config import EngineConfig


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the model; `ended` is False when the token limit cut it off."""

    text: str
    reasoning: str
    calls: tuple[tuple[str, str], ...]
    ended: bool
    ledger: LedgerEntry | None

    def message(self) -> Message:
        calls = tuple(ToolCall(f"call_{i}", *call) for i, call in enumerate(self.calls))
        return Message("assistant", self.text, self.reasoning, calls, ledger=self.ledger)


class Chats:
    """Greedy answers from an engine process of its own; state of a chat is kept between its turns."""

    def __init__(self, model: Path, lanes: int = 8, threads: int = 1) -> None:
        ours, theirs = socket.socketpair()
        config = EngineConfig(str(model), max_lanes=lanes, max_waiting=4096, threads=threads)
        line = [sys.executable, "-m", "engine.serve", "--fd", str(theirs.fileno())]
        line += ["--config-json", config.to_json()]
        self.process = subprocess.Popen(line, pass_fds=[theirs.fileno()], stderr=subprocess.DEVNULL)
        theirs.close()
        self.socket, self.incoming = ours, ours.makefile("rb")
        self.numbers = itertools.count()
        while not isinstance(self.receive(), Ready):
            pass

    def close(self) -> None:
        self.send(Shutdown())
        self.process.wait(timeout=30)

    def send(self, command: Command) -> None:
        self.socket.sendall(encode_frame(command))

    def receive(self) -> Event:
        """Raises EOFError when the engine has gone."""
        header = self.incoming.read(FRAME_HEADER.size)
        if len(header) < FRAME_HEADER.size:
            raise EOFError(f"the engine process ended with status {self.process.wait()}")
        event: Event = decode_payload(self.incoming.read(FRAME_HEADER.unpack(header)[0]))
        return event

    def count(self, prompt: Prompt) -> int:
        self.send(CountTokens(RequestId("count"), prompt))
        while not isinstance(event := self.receive(), TokenCount):
            pass
        return event.tokens

    def answer(
        self, prompts: Sequence[Prompt], names: Sequence[str], limit: int = 400
    ) -> list[Reply]:
        """One reply for each prompt; `names` tells which chat it belongs to."""
        open_ones = {self.submit(p, n, limit) for p, n in zip(prompts, names, strict=True)}
        order, taken = sorted(open_ones), []
        while open_ones:
            taken.append(event := self.receive())
            if isinstance(event, Finished | Failed | Rejected):
                open_ones.discard(event.request_id)
        return [reply_of(taken, r) for r in order]

    def submit(self, prompt: Prompt, name: str, limit: int) -> RequestId:
        request = RequestId(f"{next(self.numbers):06d}")
        chat = ContinuationId(name)
        worth = Retention(chat, 0, time.time())
        tenant = TenantKey("scores")
        self.send(Generate(request, tenant, chat, prompt, worth, max_tokens=limit))
        return request


def reply_of(events: Sequence[Event], request: RequestId) -> Reply:
    """Raises RuntimeError where the engine refused or failed."""
    text, reasoning, calls = "", "", []
    for e in events:
        if getattr(e, "request_id", None) != request:
            continue
        match e:
            case Delta(kind=DeltaKind.TEXT):
                text += e.text
            case Delta(kind=DeltaKind.REASONING):
                reasoning += e.text
            case Delta(kind=DeltaKind.TOOL_CALL):
                assert e.call is not None
                calls.append(e.call)
            case Rejected() | Failed():
                raise RuntimeError(e.message)
            case Finished():
                ended = e.reason in (FinishReason.STOP, FinishReason.TOOL_CALLS)
                return Reply(text, reasoning, tuple(calls), ended, e.ledger)
    raise RuntimeError(f"{request} has no end")


def grown(prompt: Prompt, *messages: Message) -> Prompt:
    return replace(prompt, messages=prompt.messages + messages)
