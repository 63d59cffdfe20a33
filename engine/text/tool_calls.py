"""The syntax of one tool call in generated text. Knows where a call ends and what it says, not when text arrives.

    <tool_call>\\n<function=NAME>\\n<parameter=P>\\nVALUE\\n</parameter>\\n</function>\\n</tool_call>
    <tool_call>\\n{"name": NAME, "arguments": {…}}\\n</tool_call>

This is no XML: values are raw text, markup and closers included. A closer counts only where the call's own syntax goes on
behind it (a further parameter, the function's closer, the end), and a whole call quoted inside a value is skipped.
A call must name an offered tool. The opening `<tool_call>` may be missing. Missing closers are forgiven only where no
other reading is left: once the text has ended, or when the strict reading leaves out a required parameter.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from engine.text.arguments import Schema, argument_json

CALL, CALL_END = "<tool_call>", "</tool_call>"
FUNCTION, FUNCTION_END = "<function=", "</function>"
PARAMETER, PARAMETER_END = "<parameter=", "</parameter>"
OPENINGS = (CALL, FUNCTION)
ENDINGS = (CALL_END, FUNCTION_END, CALL)
"""Tags without one of which a call begun can't have come to its end."""

PARAMETER_TAG = re.compile(r"<parameter=([^<>\n]+)>")
XML_HEAD = re.compile(r"(<tool_call>\s*)?<function=([^<>\n]+)>")
TAG = re.compile(r"</?tool_call>|</function>|</?parameter(?:=[^<>\n]+)?>")
BLANK = re.compile(r"\s*")
FUNCTION_END_BEFORE = re.compile(r"</function>\s*\Z")

Tools = Mapping[str, Schema]
"""Offered tools: name → JSON schema of the parameters."""


@dataclass(frozen=True, slots=True)
class Call:
    """A complete call: `arguments` is JSON text, `source` the text it was read from."""

    name: str
    arguments: str
    source: str


class Need(Enum):
    """Why there is no call yet: its end has not come, or a few more characters decide whether it has."""

    CLOSER = auto()
    LOOKAHEAD = auto()


class Start(Enum):
    """What the beginning of a text says: a call may be read from it, can't be, or that depends on what follows."""

    CALL = auto()
    PROSE = auto()
    OPEN = auto()


def classify_start(text: str, tools: Tools) -> Start:
    """Reads the beginning of `text`, which starts with one of OPENINGS."""
    rest = text.removeprefix(CALL)
    wrapped = len(rest) < len(text)
    rest = rest.lstrip() if wrapped else rest
    if wrapped and rest.startswith("{"):
        return Start.CALL
    if not rest.startswith(FUNCTION):
        return Start.OPEN if FUNCTION.startswith(rest) else Start.PROSE
    name, closed, body = rest[len(FUNCTION) :].partition(">")
    if not closed:
        return Start.OPEN if any(known.startswith(name) for known in tools) else Start.PROSE
    if name not in tools:
        return Start.PROSE
    body = body.lstrip()
    if body.startswith((PARAMETER, FUNCTION_END)):
        return Start.CALL
    return (
        Start.OPEN
        if any(tag.startswith(body) for tag in (PARAMETER, FUNCTION_END))
        else Start.PROSE
    )


def read_call(text: str, tools: Tools, ended: bool) -> Call | Need | None:
    """The call `text` begins with (`classify_start` has said CALL), or what it lacks; None if it is none.

    With `ended` no text follows, and the answer is never a Need.
    """
    head = XML_HEAD.match(text)
    if head is None:
        return _read_json(text, tools, ended)
    body = _read_xml(text, head, tools, ended)
    if not isinstance(body, _Body):
        return body
    schema = tools[head.group(2)]
    pairs = (
        f"{json.dumps(name, ensure_ascii=False)}: {argument_json(value, name, schema)}"
        for name, value in body.values.items()
    )
    return Call(head.group(2), "{" + ", ".join(pairs) + "}", text[: body.end])


@dataclass(frozen=True, slots=True)
class _Body:
    """Raw argument texts in order, and the index behind the call."""

    values: Mapping[str, str]
    end: int

    def complete(self, schema: Schema) -> bool:
        required = schema.get("required")
        return not isinstance(required, list | tuple) or all(
            name in self.values for name in required
        )


class _Next(Enum):
    """What follows a position when no tag does: nothing, text, or too little to tell."""

    END = auto()
    OTHER = auto()
    UNKNOWN = auto()


def _read_xml(text: str, head: re.Match[str], tools: Tools, ended: bool) -> _Body | Need | None:
    """The strict reading if there is one that leaves no required parameter out, else the forgiving one."""
    schema, wrapped = tools[head.group(2)], head.group(1) is not None
    strict = _Reader(text, tools, schema, wrapped, ended, lenient=False).body(head.end())
    if isinstance(strict, _Body):
        if strict.complete(schema):
            return strict
        same = _Reader(text[: strict.end], tools, schema, wrapped, True, lenient=True).body(
            head.end()
        )
        better = isinstance(same, _Body) and same.end == strict.end and same.complete(schema)
        return same if better else strict
    if not ended:
        return strict
    forgiving = _Reader(text, tools, schema, wrapped, ended, lenient=True).body(head.end())
    return forgiving if isinstance(forgiving, _Body) else None


@dataclass(frozen=True, slots=True)
class _Reader:
    """One way of reading one call's parameters; `lenient` (only once the text has ended) forgives missing closers."""

    text: str
    tools: Tools
    schema: Schema
    wrapped: bool
    ended: bool
    lenient: bool

    def body(self, position: int) -> _Body | Need | None:
        """Parameters from `position` on, up to the end of the call."""
        values: dict[str, str] = {}
        while True:
            position = self._skip_blank(position)
            opening = PARAMETER_TAG.match(self.text, position)
            if opening is None:
                return self._call_end(position, values)
            name = opening.group(1).strip()
            end = self._value_end(opening.end(), {*values, name})
            if not isinstance(end, int):
                return end
            values[name] = _unframed(self.text[opening.end() : end])
            position = end
            if self.text.startswith(PARAMETER_END, position):
                position += len(PARAMETER_END)

    def _call_end(self, position: int, values: Mapping[str, str]) -> _Body | Need | None:
        """`position` is behind the last value; a call without a closer of its own has been let through as lenient."""
        if self.text.startswith(FUNCTION_END, position):
            closes = self._function_closes(position + len(FUNCTION_END))
            if closes is not True:
                return Need.LOOKAHEAD if closes is None else (None if self.ended else Need.CLOSER)
            position = self._skip_blank(position + len(FUNCTION_END))
        elif not self.text.startswith(CALL_END, position):
            return None if self.ended else Need.CLOSER
        if self.text.startswith(CALL_END, position):
            return _Body(values, position + len(CALL_END))
        return _Body(values, len(self.text[:position].rstrip()))

    def _value_end(self, start: int, used: set[str]) -> int | Need | None:
        """Index of the tag that ends the value beginning at `start`."""
        for tag in self._own_tags(start):
            ends = self._ends_value(tag, used)
            if ends is None:
                return Need.LOOKAHEAD
            if ends:
                return tag.start()
        return None if self.ended else Need.CLOSER

    def _own_tags(self, start: int) -> Iterator[re.Match[str]]:
        """Tags from `start` on that belong to no call quoted in between."""
        depth = 0
        for tag in TAG.finditer(self.text, start):
            if tag.group() == CALL and self._opens_call(tag.start()):
                depth += 1
            elif depth == 0:
                yield tag
            elif tag.group() == CALL_END and FUNCTION_END_BEFORE.search(
                self.text, start, tag.start()
            ):
                depth -= 1

    def _opens_call(self, position: int) -> bool:
        head = XML_HEAD.match(self.text, position)
        if head is None or head.group(2) not in self.tools:
            return False
        return self.text.startswith((PARAMETER, FUNCTION_END), self._skip_blank(head.end()))

    def _ends_value(self, tag: re.Match[str], used: set[str]) -> bool | None:
        """Whether a tag ends the value before it; None while that can't be told."""
        word = tag.group()
        if word == PARAMETER_END:
            return self._parameter_closes(tag.end(), used)
        if not self.lenient:
            return False
        if word == FUNCTION_END:
            return self._function_closes(tag.end())
        if word == CALL_END:
            return self._next(tag.end(), OPENINGS) in (_Next.END, *OPENINGS)
        opening = PARAMETER_TAG.fullmatch(word)
        known = self.schema.get("properties")
        name = opening.group(1).strip() if opening else ""
        return (
            isinstance(known, Mapping)
            and name in known
            and name not in used
            and self.text[tag.start() - 1] == "\n"
        )

    def _parameter_closes(self, position: int, used: set[str]) -> bool | None:
        """Whether the call goes on at `position`, behind a `</parameter>`."""
        following = self._next(position, (PARAMETER, FUNCTION_END, CALL_END))
        position = self._skip_blank(position)
        if following is _Next.UNKNOWN:
            return None
        if following == FUNCTION_END:
            return self._function_closes(position + len(FUNCTION_END))
        if following == CALL_END:
            return self.lenient and self._next(position + len(CALL_END), OPENINGS) in (
                _Next.END,
                *OPENINGS,
            )
        if following != PARAMETER:
            return False
        opening = PARAMETER_TAG.match(self.text, position)
        if opening is None:
            name = self.text[position + len(PARAMETER) :]
            return False if self.ended or set(name) & set("<>\n") else None
        return opening.group(1).strip() not in used

    def _function_closes(self, position: int) -> bool | None:
        """Whether the call ends at `position`, behind a `</function>`."""
        following = self._next(position, (CALL_END, *OPENINGS))
        if following is _Next.UNKNOWN:
            return None
        if following is _Next.OTHER:
            return self.lenient or not self.wrapped
        return True

    def _next(self, position: int, tags: tuple[str, ...]) -> str | _Next:
        """Which of `tags` follows, blanks aside."""
        position = self._skip_blank(position)
        for tag in tags:
            if self.text.startswith(tag, position):
                return tag
        rest = self.text[position : position + len(PARAMETER_END)]
        if not self.ended and any(tag.startswith(rest) for tag in tags):
            return _Next.UNKNOWN
        return _Next.OTHER if rest else _Next.END

    def _skip_blank(self, position: int) -> int:
        blank = BLANK.match(self.text, position)
        assert blank is not None
        return blank.end()


def _unframed(value: str) -> str:
    """A value without the line breaks the call format puts around it."""
    return value.removeprefix("\n").removesuffix("\n")


def _read_json(text: str, tools: Tools, ended: bool) -> Call | Need | None:
    start = text.index("{")
    try:
        value, end = json.JSONDecoder(strict=False).raw_decode(text, start)
        parsed = _named_call(value, tools)
    except (ValueError, RecursionError) as error:
        return None if ended or _is_hopeless(error, text) else Need.CLOSER
    reader = _Reader(text, tools, {}, True, ended, lenient=False)
    following = reader._next(end, (CALL_END, CALL))
    if following is _Next.UNKNOWN:
        return Need.LOOKAHEAD
    if parsed is None or following is _Next.OTHER:
        return None
    if following == CALL_END:
        end = reader._skip_blank(end) + len(CALL_END)
    return Call(*parsed, text[:end])


def _is_hopeless(error: Exception, text: str) -> bool:
    """Whether a closer stands behind what is wrong, so that more text can't mend it."""
    if not isinstance(error, json.JSONDecodeError):
        return True
    return not error.msg.startswith("Unterminated string") and CALL_END in text[error.pos :]


def _named_call(value: Any, tools: Tools) -> tuple[str, str] | None:
    """Name and arguments of a call in JSON form; ValueError for arguments that are no JSON."""
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(name, str) or name not in tools:
        return None
    arguments = value.get("arguments", {})
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    if not isinstance(arguments, dict):
        return None
    return name, json.dumps(arguments, ensure_ascii=False, allow_nan=False)
