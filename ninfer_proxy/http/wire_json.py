"""Bytes of a request body → JSON value, within limits. Pure; knows JSON's corners, not what the value means."""

import re
from typing import Any

import orjson

from ninfer_proxy.errors import InvalidRequest, MalformedJson
from ninfer_proxy.wording import counted

# orjson writes at most this many levels; deeper values could be read but never given back.
_WRITABLE_LEVELS = 254
_BOM = b"\xef\xbb\xbf"
# Escaped halves of a surrogate pair, and whole pairs so that those are left alone. An escape begins behind an even number of
# backslashes: of the run before it only whole pairs may be skipped, from the run's start.
_SURROGATES = re.compile(
    rb"(?<!\\)((?:\\\\)*)"
    rb"(?:(?P<pair>\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)


def parse_json(body: bytes, *, max_depth: int, max_parts: int) -> Any:
    """The value that `body` spells. Of two equal keys the last one counts.

    Half surrogates in `\\u` escapes (clients that cut text in the middle of an emoji send them) become U+FFFD, since such strings
    can be neither stored nor sent on. Errors: MalformedJson for what isn't JSON, InvalidRequest for more than `max_depth`
    levels or `max_parts` values.
    """
    # Counted before parsing: it takes no time and keeps a hostile body from holding up everyone else.
    if body.count(b",") + body.count(b"[") + body.count(b"{") > max_parts:
        raise InvalidRequest(f"The body has more than {counted(max_parts, 'JSON value')}.")
    value = _loads(body.removeprefix(_BOM))
    if _deeper_than(value, max_depth):
        raise InvalidRequest(f"The body is nested more than {counted(max_depth, 'level')} deep.")
    return value


def _loads(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        problem = error
    if b"\\u" in body:
        try:
            return orjson.loads(_SURROGATES.sub(_replace_half, body))
        except orjson.JSONDecodeError as error:
            problem = error
    raise MalformedJson(f"The body is not valid JSON: {problem}.")


def _replace_half(match: re.Match[bytes]) -> bytes:
    return match[0] if match["pair"] else match[1] + rb"\ufffd"


def _deeper_than(value: Any, levels: int) -> bool:
    """Is `value` nested deeper than `levels`? Asked of the C encoder, which stops at a known depth, by wrapping the value up to it."""
    for _ in range(_WRITABLE_LEVELS - levels):
        value = [value]
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        return True
    return False
