"""Recorded requests of real clients, one after another, without the clients. Sends nothing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests import recordings


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request as a client sent it, and what the recording server answered it with.

    `output` are the answer's items, which the client replays in later requests of the file; empty when the
    answer was an error or was not kept. `elided`: long strings were shortened, equal ones equally.
    """

    number: int
    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: Mapping[str, Any]
    response_id: str | None
    output: tuple[Mapping[str, Any], ...]
    elided: bool

    def sendable_headers(self) -> dict[str, str]:
        """Without those that belong to the recorded connection; the client's key is kept, identities hang on it."""
        own = {"host", "connection", "content-length", "accept-encoding"}
        return {name: value for name, value in self.headers if name.lower() not in own}

    def with_parent(self, ids: Mapping[str, str]) -> dict[str, Any]:
        """The body, its `previous_response_id` exchanged: recorded id → the id that the server under test gave."""
        body = dict(self.body)
        parent = body.get("previous_response_id")
        if isinstance(parent, str):
            body["previous_response_id"] = ids.get(parent, parent)
        return body


def requests(capture: str) -> Iterator[Recorded]:
    """HTTP requests of one file such as "openclaw/a_nocont" in order of arrival; WebSocket frames are left out."""
    by_time = sorted(recordings.rows(capture), key=lambda row: row.get("t", 0))
    for number, row in enumerate(by_time, 1):
        if row.get("kind", "http") == "http" and isinstance(row.get("body"), dict):
            yield _recorded(row, number)


def _recorded(row: Mapping[str, Any], number: int) -> Recorded:
    reply = row.get("reply") or {}
    return Recorded(
        number=int(row.get("n", number)),
        method=str(row.get("method", "POST")),
        path=str(row["path"]),
        headers=tuple((str(name), str(value)) for name, value in row["headers"]),
        body=row["body"],
        response_id=reply.get("response_id"),
        output=tuple(reply.get("output") or ()),
        elided=bool(row.get("elided")),
    )
