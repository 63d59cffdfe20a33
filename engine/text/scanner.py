"""Finds tool calls in text as it arrives. Knows when to wait and when to let go, not what a call's syntax is."""

from engine.text.call_body import OPENINGS, Need, Tools
from engine.text.tool_calls import ENDINGS, Call, Start, classify_start, read_call

LONGEST_TAG = max(map(len, ENDINGS))


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
        if self._need is Need.CLOSER and not any(tag in recent for tag in ENDINGS):
            return []
        return self._scan(self._take(), ended=False)

    def finish(self, ended: bool) -> list[str | Call]:
        """No more text follows. Only if the model `ended` by itself is what was held read once more, leniently: a call that
        a limit cut off is prose.
        """
        text = self._take()
        return self._scan(text, ended=True) if ended else [text] if text else []

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
    """How many of the last characters may be the start of an opening tag."""
    for length in range(min(len(text), LONGEST_TAG - 1), 0, -1):
        if any(tag.startswith(text[-length:]) for tag in OPENINGS):
            return length
    return 0
