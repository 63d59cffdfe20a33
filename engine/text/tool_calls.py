"""Tool calls in generated text: what may begin one, and what a complete one says. Knows not when text arrives.

A call must name an offered tool. Two forms are read: the one of engine.text.call_body, whose opening `<tool_call>` may be
missing, and `<tool_call>{"name": NAME, "arguments": {…}}</tool_call>`.
"""

import json
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from engine.text.arguments import argument_json
from engine.text.call_body import (
    CALL,
    CALL_END,
    FUNCTION,
    FUNCTION_END,
    PARAMETER,
    XML_HEAD,
    CallBody,
    CallReader,
    Need,
    Next,
    Tools,
    read_xml,
)


@dataclass(frozen=True, slots=True)
class Call:
    """A complete call: `arguments` is JSON text, `source` the text it was read from."""

    name: str
    arguments: str
    source: str


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
    body, inner = body.lstrip(), (PARAMETER, FUNCTION_END)
    if body.startswith(inner):
        return Start.CALL
    return Start.OPEN if any(tag.startswith(body) for tag in inner) else Start.PROSE


def read_call(text: str, tools: Tools, ended: bool) -> Call | Need | None:
    """The call `text` begins with (`classify_start` has said CALL), or what it lacks; None if it is none.

    With `ended` no text follows, and the answer is never a Need.
    """
    head = XML_HEAD.match(text)
    if head is None:
        return _read_json(text, tools, ended)
    body = read_xml(text, head, tools, ended)
    if not isinstance(body, CallBody):
        return body
    schema = tools[head.group(2)]
    pairs = (
        f"{json.dumps(name, ensure_ascii=False)}: {argument_json(value, name, schema)}"
        for name, value in body.values.items()
    )
    return Call(head.group(2), "{" + ", ".join(pairs) + "}", text[: body.end])


def _read_json(text: str, tools: Tools, ended: bool) -> Call | Need | None:
    start = text.index("{")
    try:
        value, end = json.JSONDecoder(strict=False).raw_decode(text, start)
    except (ValueError, RecursionError) as error:
        return None if ended or _is_hopeless(error, text) else Need.JSON_CLOSER
    reader = CallReader(text, tools, {}, True, ended, lenient=False)
    following = reader.following(end, (CALL_END, CALL))
    if following is Next.UNKNOWN:
        return Need.LOOKAHEAD
    parsed = _named_call(value, tools)
    if parsed is None or following is Next.OTHER:
        return None
    if following == CALL_END:
        end = reader.skip_blank(end) + len(CALL_END)
    return Call(*parsed, text[:end])


def _is_hopeless(error: Exception, text: str) -> bool:
    """Whether a closer stands behind what is wrong, so that more text can't mend it."""
    if not isinstance(error, json.JSONDecodeError):
        return True
    return not error.msg.startswith("Unterminated string") and CALL_END in text[error.pos :]


def _named_call(value: Any, tools: Tools) -> tuple[str, str] | None:
    """Name and arguments of a call in JSON form, None where it is no call of a known tool."""
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(name, str) or name not in tools:
        return None
    arguments = value.get("arguments", {})
    try:
        if isinstance(arguments, str):
            arguments = json.loads(arguments)
        written = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return (name, written) if isinstance(arguments, dict) else None
