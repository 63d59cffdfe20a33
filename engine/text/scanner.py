"""Finds tool calls in text as it arrives. Knows when to wait and when to let go, not what a call's syntax is."""

import re

from engine.text.call_body import CALL, CALL_END, FUNCTION_END, OPENINGS, PARAMETER_END, Need, Tools
from engine.text.tool_calls import Call, Start, classify_start, read_call

LONGEST_TAG = max(map(len, (CALL, CALL_END, FUNCTION_END)))


class CallScanner:
    """Cuts text into prose and calls. What goes in comes out, in order: prose as strings, calls with their `source`.

    Prose is let go as soon as it can't be the start of a call. With no tools everything is prose.
    """

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._held: list[str] = []
        self._tail = ""
        self._need: Need | None = None

    @property
    def held(self) -> str:
        """Text not let go yet."""
        return "".join(self._held)

    def feed(self, text: str) -> list[str | Call]:
        if not self._tools:
            return [text]
        self._held.append(text)
        recent = self._tail + text
        self._tail = recent[-LONGEST_TAG:]
        return self._scan(self._take(), ended=False) if self._may_end(recent) else []

    def finish(self, ended: bool) -> list[str | Call]:
        """No more text follows. Only if the model `ended` by itself is what was held read once more, leniently: a call that
        a limit cut off is prose.
        """
        text = self._take()
        return self._scan(text, ended=True) if ended else [text] if text else []

    def _may_end(self, recent: str) -> bool:
        """Whether the newest text can have ended the call that is held: reading it takes time in its whole length."""
        if self._need is Need.JSON_CLOSER:
            return CALL_END in recent or CALL in recent
        if self._need is not Need.CLOSER:
            return True
        if FUNCTION_END not in recent:
            return False
        text = self.held
        self._held = [text]
        ends = re.compile(FUNCTION_END).finditer(text, len(text) - len(recent))
        return any(text[: end.start()].rstrip().endswith(PARAMETER_END) for end in ends)

    def _take(self) -> str:
        text = self.held
        self._held.clear()
        self._need = None
        return text

    def _scan(self, text: str, ended: bool) -> list[str | Call]:
        found: list[str | Call] = []
        position = prose = 0
        while True:
            start = _first_opening(text, position)
            if start is None:
                keep = 0 if ended else _opening_prefix(text[position:])
                position = len(text) - keep
                break
            result = self._read(text[start:], ended)
            if isinstance(result, Call):
                if start > prose:
                    found.append(text[prose:start])
                found.append(result)
                position = prose = start + len(result.source)
            elif result is None:
                position = start + 1
            else:
                position, self._need = start, result
                break
        if position > prose:
            found.append(text[prose:position])
        self._held.append(text[position:])
        return found

    def _read(self, text: str, ended: bool) -> Call | Need | None:
        start = classify_start(text, self._tools)
        if start is Start.CALL:
            return read_call(text, self._tools, ended)
        return Need.LOOKAHEAD if start is Start.OPEN and not ended else None


def _first_opening(text: str, position: int) -> int | None:
    found = [at for at in (text.find(tag, position) for tag in OPENINGS) if at >= 0]
    return min(found, default=None)


def _opening_prefix(text: str) -> int:
    """How many of the last characters may be the start of an opening tag (whose first character it has once only)."""
    start = text.rfind("<", -LONGEST_TAG)
    if start < 0 or not any(tag.startswith(text[start:]) for tag in OPENINGS):
        return 0
    return len(text) - start
