"""Files → one workload: all their requests on one machine, in order of time. Knows the formats' names and how they are put together.

Each conversation keeps its own clock. The traces begin one after another, evenly over `spread` seconds in the order they are given: the
k-th of n at k × spread / n. Request logs begin together at 0, each with the distances it recorded.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ninfer_proxy.errors import CommandRefused
from ninfer_proxy.simulate.line import Line
from ninfer_proxy.simulate.request import Request
from ninfer_proxy.simulate.trace import trace_requests


def workload(files: Sequence[tuple[str, str]], spread: float) -> list[Request]:
    """`files` are names and texts. Errors: CommandRefused, which names the file."""
    root = Line.root()
    traces = [(name, _trace(name, text)) for name, text in files]
    requests: list[Request] = []
    for index, (name, trace) in enumerate(traces):
        offset = index * spread / len(traces)
        requests += [_later(each, offset) for each in _requests(f"{name}", trace, root)]
    return sorted(requests, key=lambda request: request.begins)


def _trace(name: str, text: str) -> Mapping[str, Any]:
    try:
        trace = json.loads(text)
    except ValueError as error:
        raise CommandRefused(f"{name} is no trace: {error}") from None
    if not isinstance(trace, dict):
        raise CommandRefused(f"{name} is no trace: it holds no object with `requests`.")
    return trace


def _requests(name: str, trace: Mapping[str, Any], root: Line) -> list[Request]:
    try:
        return trace_requests(name, trace, root)
    except (KeyError, TypeError, ValueError) as error:
        said = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise CommandRefused(f"{name} is no trace: {said}.") from None


def _later(request: Request, offset: float) -> Request:
    return replace(request, begins=request.begins + offset, ends=request.ends + offset)
