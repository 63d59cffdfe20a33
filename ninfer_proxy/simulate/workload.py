"""Files → one workload: all their requests on one machine, in order of time. Knows the formats' names and how they are put together.

Each conversation keeps its own clock. The traces begin one after another, evenly over `spread` seconds in the order they are given: the
k-th of n at k × spread / n. Request logs keep their distances, also from each other; the earliest request begins at 0.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from ninfer_proxy.errors import CommandRefused
from ninfer_proxy.logged import LoggedRequest, is_log, logged_request
from ninfer_proxy.simulate.line import Line
from ninfer_proxy.simulate.log import logged_requests
from ninfer_proxy.simulate.request import Request
from ninfer_proxy.simulate.trace import trace_requests


def workload(files: Sequence[tuple[str, str]], spread: float) -> list[Request]:
    """`files` are names and texts. Errors: CommandRefused, which names the file."""
    root = Line.root()
    traces = [(name, _trace(name, text)) for name, text in files if not is_log(text)]
    logs = [(name, text) for name, text in files if is_log(text)]
    records = [record for name, text in logs for record in _records(name, text)]
    first = min((record.begins for record in records), default=0.0)
    requests = [_later(each, -first) for each in logged_requests(records)]
    for index, (name, trace) in enumerate(_told_apart(traces)):
        offset = index * spread / len(traces)
        requests += [_later(each, offset) for each in _requests(name, trace, root)]
    return sorted(requests, key=lambda request: request.begins)


def _told_apart(
    traces: Sequence[tuple[str, Mapping[str, Any]]],
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The same name again is another conversation."""
    seen: dict[str, int] = {}
    for name, trace in traces:
        seen[name] = seen.get(name, 0) + 1
        yield (name if seen[name] == 1 else f"{name}~{seen[name]}"), trace


def _records(name: str, text: str) -> Iterator[LoggedRequest]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                yield logged_request(line)
            except (TypeError, ValueError) as error:
                raise CommandRefused(
                    f"Line {number} of {name} is no record of a request log: {error}."
                ) from None


def _trace(name: str, text: str) -> Mapping[str, Any]:
    try:
        trace = orjson.loads(text)
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
