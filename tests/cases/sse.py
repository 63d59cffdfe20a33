"""A stream of server-sent events as a client meets it: when each came, what it held, whether it was well formed. Knows no dialect."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

DONE = "[DONE]"


@dataclass(frozen=True, slots=True)
class Event:
    """`at` in seconds since the request was sent. `data` is empty where it was no JSON object, as in [DONE]."""

    at: float
    name: str
    text: str
    data: dict[str, Any]

    @property
    def type(self) -> str:
        return str(self.data.get("type", self.name))


@dataclass(slots=True)
class Stream:
    """Mutable; fed as bytes come. `faults` are breaches of the format, in words; `bytes_at` the times at which bytes came."""

    events: list[Event] = field(default_factory=list)
    comments_at: list[float] = field(default_factory=list)
    bytes_at: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    rest: bytes = b""

    def feed(self, chunk: bytes, at: float) -> None:
        self.bytes_at.append(at)
        *frames, self.rest = (self.rest + chunk).replace(b"\r\n", b"\n").split(b"\n\n")
        for frame in frames:
            self._take(frame, at)

    def end(self) -> None:
        if self.rest.strip():
            self.faults.append(f"ends inside a frame: {self.rest[:80]!r}")

    def of_type(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.type == kind]

    def _take(self, frame: bytes, at: float) -> None:
        try:
            lines = frame.decode().split("\n")
        except UnicodeDecodeError:
            self.faults.append(f"a frame is no UTF-8: {frame[:80]!r}")
            return
        name, data = "", []
        for line in lines:
            label, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if not label:
                self.comments_at.append(at)
            elif label == "event":
                name = value
            elif label == "data":
                data.append(value)
            elif label not in ("id", "retry"):
                self.faults.append(f"a line is neither field nor comment: {line[:80]!r}")
        if data:
            self._add(name, "\n".join(data), at)

    def _add(self, name: str, text: str, at: float) -> None:
        parsed: Any = {}
        if text != DONE:
            try:
                parsed = json.loads(text)
            except ValueError:
                self.faults.append(f"data is no JSON: {text[:80]!r}")
        self.events.append(Event(at, name, text, parsed if isinstance(parsed, dict) else {}))


def gaps(times: list[float]) -> Iterator[float]:
    return (later - earlier for earlier, later in itertools.pairwise(times))
