"""Where one tool call in the XML-like form ends, and what its parameters say. Knows neither JSON nor types.

    <tool_call>\\n<function=NAME>\\n<parameter=P>\\nVALUE\\n</parameter>\\n</function>\\n</tool_call>

This is no XML: values are raw text, markup and closers included. A closer counts only where the call's own syntax goes on
behind it (a further parameter, the function's closer, the end), and a whole call quoted inside a value is skipped.
Missing closers are forgiven only where no other reading is left: once the text has ended, or when the strict reading
leaves out a required parameter.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from engine.text.arguments import Schema

CALL, CALL_END = "<tool_call>", "</tool_call>"
FUNCTION, FUNCTION_END = "<function=", "</function>"
PARAMETER, PARAMETER_END = "<parameter=", "</parameter>"
OPENINGS = (CALL, FUNCTION)

PARAMETER_TAG = re.compile(r"<parameter=([^<>\n]+)>")
XML_HEAD = re.compile(r"(<tool_call>\s*)?<function=([^>]*)>")
TAG = re.compile(r"</?tool_call>|</function>|</?parameter(?:=[^<>\n]+)?>")
BLANK = re.compile(r"\s*")
FUNCTION_END_BEFORE = re.compile(r"</function>\s*\Z")

Tools = Mapping[str, Schema]
"""Offered tools: name → JSON schema of the parameters."""


class Need(Enum):
    """Why there is no call yet: its end has not come (by its form), or a few more characters decide whether it has."""

    CLOSER = auto()
    JSON_CLOSER = auto()
    LOOKAHEAD = auto()


@dataclass(frozen=True, slots=True)
class CallBody:
    """Raw argument texts in order, and the index behind the call."""

    values: Mapping[str, str]
    end: int

    def complete(self, schema: Schema) -> bool:
        """Whether no required parameter is left out."""
        required = schema.get("required")
        if not isinstance(required, list | tuple):
            return True
        return all(name in self.values for name in required)


class Next(Enum):
    """What follows a position when no tag does: nothing, text, or too little to tell."""

    END = auto()
    OTHER = auto()
    UNKNOWN = auto()


def read_xml(text: str, head: re.Match[str], tools: Tools, ended: bool) -> CallBody | Need | None:
    """The strict reading if there is one that leaves no required parameter out, else the forgiving one."""
    start, schema, wrapped = head.end(), tools[head.group(2)], head.group(1) is not None
    strict = CallReader(text, tools, schema, wrapped, ended, lenient=False).body(start)
    if isinstance(strict, CallBody):
        if strict.complete(schema):
            return strict
        whole = text[: strict.end]
        lax = CallReader(whole, tools, schema, wrapped, ended=True, lenient=True).body(start)
        fits = isinstance(lax, CallBody) and lax.end == strict.end and lax.complete(schema)
        return lax if fits else strict
    if not ended:
        return strict
    return CallReader(text, tools, schema, wrapped, ended=True, lenient=True).body(start)


@dataclass(frozen=True, slots=True)
class CallReader:
    """One way of reading one call's parameters; `lenient` (only once the text has ended) forgives missing closers."""

    text: str
    tools: Tools
    schema: Schema
    wrapped: bool
    ended: bool
    lenient: bool

    def body(self, position: int) -> CallBody | Need | None:
        """Parameters from `position` on, up to the end of the call."""
        values: dict[str, str] = {}
        while True:
            position = self.skip_blank(position)
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

    def _call_end(self, position: int, values: Mapping[str, str]) -> CallBody | Need | None:
        """`position` is behind the last value; a call without a closer of its own has been let through as lenient."""
        if self.text.startswith(FUNCTION_END, position):
            closes = self._function_closes(position + len(FUNCTION_END))
            if closes is not True:
                return Need.LOOKAHEAD if closes is None else (None if self.ended else Need.CLOSER)
            position = self.skip_blank(position + len(FUNCTION_END))
        elif not self.text.startswith(CALL_END, position):
            return None if self.ended else Need.CLOSER
        if self.text.startswith(CALL_END, position):
            return CallBody(values, position + len(CALL_END))
        return CallBody(values, len(self.text[:position].rstrip()))

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
        return self.text.startswith((PARAMETER, FUNCTION_END), self.skip_blank(head.end()))

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
            return self.following(tag.end(), OPENINGS) in (Next.END, *OPENINGS)
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
        following = self.following(position, (PARAMETER, FUNCTION_END, CALL_END))
        position = self.skip_blank(position)
        if following is Next.UNKNOWN:
            return None
        if following == FUNCTION_END:
            return self._function_closes(position + len(FUNCTION_END))
        if following == CALL_END:
            return self.lenient and self.following(position + len(CALL_END), OPENINGS) in (
                Next.END,
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
        following = self.following(position, (CALL_END, *OPENINGS))
        if following is Next.UNKNOWN:
            return None
        if following is Next.OTHER:
            return self.lenient or not self.wrapped
        return True

    def following(self, position: int, tags: tuple[str, ...]) -> str | Next:
        """Which of `tags` follows, blanks aside."""
        position = self.skip_blank(position)
        for tag in tags:
            if self.text.startswith(tag, position):
                return tag
        rest = self.text[position : position + len(PARAMETER_END)]
        if not self.ended and any(tag.startswith(rest) for tag in tags):
            return Next.UNKNOWN
        return Next.OTHER if rest else Next.END

    def skip_blank(self, position: int) -> int:
        blank = BLANK.match(self.text, position)
        assert blank is not None
        return blank.end()


def _unframed(value: str) -> str:
    """A value without the line breaks the call format puts around it."""
    return value.removeprefix("\n").removesuffix("\n")
