"""The two channels of an answer, reasoning and text: which blanks and calls belong in them. Knows no tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.api import DeltaKind
from engine.text.stops import StopMatcher
from engine.text.tool_calls import Call


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of output as in api.Delta: `call` is (name, arguments JSON text) and is there with TOOL_CALL only.

    `tokens` counts those fed since the last piece that came out.
    """

    kind: DeltaKind
    text: str = ""
    call: tuple[str, str] | None = None
    tokens: int = 0


class Run:
    """A run of text without the line breaks that the chat format puts around it: those at its start are dropped, trailing
    blanks with a line break in them are held back until it is known whether more text follows.
    """

    def __init__(self, stops: StopMatcher) -> None:
        self._stops = stops
        self._begun = False
        self._blank = ""

    def feed(self, text: str) -> str:
        if not self._begun:
            text = text.lstrip("\r\n")
            self._begun = bool(text)
        text = self._blank + self._stops.feed(text)
        body = text.rstrip()
        holds = "\n" in text[len(body) :] and not self._stops.hit
        self._blank = text[len(body) :] if holds else ""
        return body if holds else text

    def end(self) -> str:
        """The rest, when something of the format follows: trailing blanks were its own. A new run may begin."""
        self._begun = False
        return self.finish().rstrip()

    def finish(self) -> str:
        """The rest, when nothing follows."""
        rest, self._blank = self._blank + self._stops.flush(), ""
        return rest


class TextChannel:
    """The answer: text up to a stop string, and calls."""

    def __init__(self, stop: Sequence[str]) -> None:
        self._stops = StopMatcher(stop)
        self._run = Run(self._stops)

    @property
    def stopped(self) -> bool:
        return self._stops.hit

    def take(self, item: str | Call) -> list[Piece]:
        if self.stopped:
            return []
        if isinstance(item, Call):
            return [*_said(DeltaKind.TEXT, self._run.end()), _called(item)]
        return _said(DeltaKind.TEXT, self._run.feed(item))

    def finish(self) -> list[Piece]:
        return [] if self.stopped else _said(DeltaKind.TEXT, self._run.finish())


class ReasoningChannel:
    """Reasoning. Calls at its end are kept until it is known whether it is ever closed: if so they were drafts."""

    def __init__(self) -> None:
        self._run = Run(StopMatcher(()))
        self._drafts: list[str | Call] = []

    @property
    def drafted_calls(self) -> int:
        return sum(isinstance(item, Call) for item in self._drafts)

    def take(self, item: str | Call) -> list[Piece]:
        if isinstance(item, Call) or (self._drafts and not item.strip()):
            self._drafts.append(item)
            return []
        return _said(DeltaKind.REASONING, self._run.feed(self._withdrawn() + item))

    def close(self) -> list[Piece]:
        """The block is closed."""
        text = self._run.feed(self._withdrawn())
        return _said(DeltaKind.REASONING, text + self._run.end())

    def finish(self, ended: bool) -> list[Piece]:
        """The output ends inside the block; calls are served if the model `ended` by itself."""
        if ended and self._drafts:
            calls = [_called(item) for item in self._drafts if isinstance(item, Call)]
            return [*_said(DeltaKind.REASONING, self._run.end()), *calls]
        text = self._run.feed(self._withdrawn())
        return _said(DeltaKind.REASONING, text + self._run.finish())

    def _withdrawn(self) -> str:
        """The drafts as the text they are."""
        text = "".join(item if isinstance(item, str) else item.source for item in self._drafts)
        self._drafts.clear()
        return text


def _said(kind: DeltaKind, text: str) -> list[Piece]:
    return [Piece(kind, text)] if text else []


def _called(call: Call) -> Piece:
    return Piece(DeltaKind.TOOL_CALL, call=(call.name, call.arguments))
