"""One request as the request log tells it: blinded hashes, sizes, times, outcome. The value and its line of JSON; knows no content and no file."""

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

VERSION = 1
_BEGINNING = '{"v":'


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """Times are Unix seconds, positions and sizes tokens. `items` are those of the whole history, each as its kind and blinded digest
    ("u:3fa9…"; "r:" for what doesn't count), the last `sent` of them came with the request; `output` likewise. Kinds:

        s system   u user   m summary by a known client   n what reads like one   a assistant   c call   o output   r reasoning   x other

    `counts[k]` messages lie within the first k items, `borders[i]` is the position behind the first i messages, `marks` are the borders
    that the client marked. `named` are conversations whose ids came back, `parent` that of previous_response_id.
    """

    begins: float
    ends: float
    tenant: str
    conversation: str
    role: str
    match: str
    scope: str
    evidence: str
    family: str
    side_kind: str | None
    is_subagent: bool
    tools: str
    instructions: str
    has_instructions: bool
    head_items: int
    items: tuple[str, ...]
    sent: int
    counts: tuple[int, ...]
    borders: tuple[int, ...]
    marks: tuple[int, ...]
    named: tuple[str, ...]
    parent: str | None
    prompt_tokens: int
    reused_tokens: int
    output: tuple[str, ...]
    output_tokens: int
    status: str
    reason: str
    slot: int

    def line(self) -> str:
        """As a line of the log, without its end."""
        return json.dumps({"v": VERSION, **asdict(self)}, separators=(",", ":"))


_NAMES = frozenset(field.name for field in fields(LoggedRequest))


def is_log(text: str) -> bool:
    """Does a file begin as a request log?"""
    return text.lstrip().startswith(_BEGINNING)


def logged_request(line: str) -> LoggedRequest:
    """The request of a line. Errors: ValueError, which says what is wrong with it."""
    raw = json.loads(line)
    if not isinstance(raw, dict) or raw.get("v") != VERSION:
        raise ValueError(f"it is no record of version {VERSION}")
    if missing := sorted(_NAMES - raw.keys()):
        raise ValueError(f"it lacks {missing[0]!r}")
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in raw.items()
        if name in _NAMES
    }
    return LoggedRequest(**values)
