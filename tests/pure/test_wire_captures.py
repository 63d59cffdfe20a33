"""Requests that real clients sent: each one parses, and nothing of it is lost on the way in."""

from collections.abc import Iterator
from typing import Any

import pytest

from ninfer_proxy.http.wire_chat import parse_chat
from ninfer_proxy.http.wire_common import WireDefaults
from ninfer_proxy.http.wire_responses import parse_create
from ninfer_proxy.types import OpaqueItem, TenantKey, Turn
from tests import recordings

PARSERS = {
    "/v1/responses": parse_create,
    "/v1/chat/completions": lambda body, **known: parse_chat(body, **known).turn,
}


def recorded(recording: str) -> Iterator[tuple[str, dict[str, str], dict[str, Any]]]:
    for row in recordings.rows(recording):
        if row.get("path") in PARSERS and isinstance(row.get("body"), dict):
            yield row["path"], {name.lower(): value for name, value in row["headers"]}, row["body"]


def parsed(path: str, headers: dict[str, str], body: dict[str, Any]) -> Turn:
    return PARSERS[path](
        body, headers=headers, tenant=TenantKey("t"), now=0.0, defaults=WireDefaults("demo")
    )


def expected_items(path: str, body: dict[str, Any]) -> int:
    if path == "/v1/responses":
        return 1 if isinstance(body["input"], str) else len(body["input"])
    count = 0
    for message in body["messages"]:
        calls = message.get("tool_calls") or []
        count += len(calls) + (1 if message.get("content") or not calls else 0)
    return count


@pytest.mark.parametrize("recording", recordings.names())
def test_every_recorded_request_becomes_a_turn(recording: str) -> None:
    for path, headers, body in recorded(recording):
        turn = parsed(path, headers, body)
        assert len(turn.items) == expected_items(path, body)
        assert not [item for item in turn.items if isinstance(item, OpaqueItem)]
        functions = [tool for tool in body.get("tools") or [] if tool["type"] == "function"]
        assert len(turn.tools) == len(functions)
        assert turn.client.headers.get("session_id") == headers.get("session_id")
        assert turn.client.prompt_cache_key == body.get("prompt_cache_key")
        assert turn.previous_response_id == body.get("previous_response_id")


def test_there_are_as_many_as_were_recorded() -> None:
    rows = [path for name in recordings.names() for path, _, _ in recorded(name)]
    assert rows.count("/v1/responses") >= 210
    assert rows.count("/v1/chat/completions") >= 15


def test_only_what_is_known_to_be_foreign_is_warned_about() -> None:
    warnings = {
        warning.split(": ", 1)[1]
        for name in recordings.names()
        for row in recorded(name)
        for warning in parsed(*row).warnings
    }
    assert warnings <= {
        "type 'namespace' is not supported, ignored",
        "type 'web_search' is not supported, ignored",
        # The WebSocket envelope's own fields.
        "unknown field, ignored",
    }
