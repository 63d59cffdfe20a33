"""The table of client families against what the clients really send: a header, mark or text that drifts fails here.

`golden/headers.json` holds the header names of each client and endpoint, those of the connection left out. `PYTHONPATH=. python
tests/pure/test_identity_families.py` writes it anew; when a name came or went, the client has changed: look whether the
table still names its sessions by the best of them.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from replaying import Row, recorded

from ninfer_proxy.http.wire_common import IDENTITY_HEADERS
from ninfer_proxy.identity import sight
from ninfer_proxy.identity.canonical import head_length
from ninfer_proxy.identity.clients import FAMILIES, GENERIC, appends, family_of
from ninfer_proxy.identity.family import Family
from ninfer_proxy.identity.scope import is_subagent, scope_of
from ninfer_proxy.identity.sight import Sight
from ninfer_proxy.types import Item, MessageItem
from tests import recordings

TABLE = (*FAMILIES, GENERIC)
FAMILY_OF_FILE = {
    "claude-code": "claude-code",
    "codex-sse": "codex",
    "codex-websocket": "codex",
    "langchain-openai": "generic",
    "openai-agents-sdk": "openai-agents",
    "opencode": "opencode",
    "vercel-ai-sdk": "vercel",
}
# Header names by which a session is named beside the one that the table takes, or a part of it.
ALSO_NAMED = {
    "codex": {"x-client-request-id", "x-codex-window-id"},
    "openclaw": {"x-client-request-id"},
}
# In the table from source or memory ([S], [M] there): no recording has them.
UNRECORDED = {
    "openclaw": {"side reminder", "side event"},
    "codex": {
        "side compaction",
        "summary",
        "subagent header x-openai-subagent",
        "subagent header x-codex-parent-thread-id",
    },
    "claude-code": {
        "side suggestion",
        "side compaction",
        "side title",
        "summary",
        "subagent header x-claude-code-agent-id",
        "subagent header x-claude-code-parent-agent-id",
    },
    "opencode": {"side compaction", "subagent header x-parent-session-id", "cache key"},
}
NAMED_FAMILIES = [each for each in TABLE if each.name in {*UNRECORDED}]


def client_of(recording: str) -> str:
    folder, name = recording.split("/")
    return "openclaw" if folder == "openclaw" else name


def header_sets() -> dict[str, dict[str, list[str]]]:
    """Client and endpoint → header names that each request has, and those that only some have."""
    seen: dict[str, list[set[str]]] = {}
    for recording in recordings.names():
        for raw in recordings.rows(recording):
            if names := {name.lower() for name, _ in raw.get("headers", ())}:
                where = raw.get("path", "websocket")
                seen.setdefault(f"{client_of(recording)} {where}", []).append(names)
    return {
        where: {
            "always": recordings.telling(set.intersection(*sets)),
            "sometimes": recordings.telling(set.union(*sets) - set.intersection(*sets)),
        }
        for where, sets in seen.items()
    }


def test_clients_send_the_headers_that_they_were_known_to_send() -> None:
    assert header_sets() == json.loads(recordings.KNOWN_HEADERS.read_text())


def test_every_header_of_the_table_reaches_identity() -> None:
    for family in TABLE:
        named = {*family.own_headers, *family.session_headers, *family.subagent_headers}
        named |= {family.agent_header} if family.agent_header else set()
        assert named <= IDENTITY_HEADERS, family.name


def seen(row: Row) -> tuple[tuple[Item, ...], Sight, Family]:
    items = row.turn.items
    found = sight.look(row.turn, items, head_length(items), appends)
    return items, found, family_of(found)


@pytest.mark.parametrize("recording", recordings.names())
def test_each_request_is_its_clients(recording: str) -> None:
    """A request that goes on from a stored response may have no system text of its own; its session names it then."""
    client = client_of(recording)
    wanted = FAMILY_OF_FILE.get(client, client)
    assert {
        seen(row)[2].name for row in recorded(recording) if not row.turn.previous_response_id
    } == {wanted}


def unknown_names(recording: str, **rename: str) -> set[str]:
    """Headers that name a request's session although the table doesn't know them; `rename` plays a client that changed."""
    unknown: set[str] = set()
    for raw, row in zip(_http_rows(recording), recorded(recording), strict=True):
        _, found, family = seen(row)
        session = scope_of(family, found)[0].partition(":")[2].partition("/")[0]
        sent = {rename.get(name.replace("-", "_"), name): value for name, value in raw.items()}
        known = {*family.session_headers, *ALSO_NAMED.get(family.name, ())}
        if session:
            naming = {n for n, v in sent.items() if v == session or v.startswith(f"{session}:")}
            unknown |= naming - known
    return unknown


def _http_rows(recording: str) -> Iterator[dict[str, str]]:
    opened: dict[str, str] = {}
    for raw in recordings.rows(recording):
        headers = {name.lower(): value for name, value in raw["headers"]}
        if raw.get("kind") == "ws-open":
            opened = headers
        elif isinstance(raw.get("body"), dict):
            yield opened | headers


@pytest.mark.parametrize("recording", recordings.names())
def test_no_header_names_a_session_unknown_to_the_table(recording: str) -> None:
    assert unknown_names(recording) == set()


@pytest.mark.parametrize(
    ("recording", "header"),
    [
        ("openclaw/b2_cont_ids", "session_id"),
        ("openclaw/e_completions", "x-session-affinity"),
        ("clients/codex-sse", "thread-id"),
        ("clients/opencode", "x-session-id"),
    ],
)
def test_a_renamed_header_would_be_noticed(recording: str, header: str) -> None:
    assert unknown_names(recording, **{header.replace("-", "_"): "x-new-name"}) == {"x-new-name"}


@pytest.mark.parametrize("family", NAMED_FAMILIES, ids=lambda family: family.name)
def test_what_the_table_knows_of_a_client_is_in_its_recordings(family: Family) -> None:
    """All but what is marked as unmeasured: a text that a client rewords is missed here."""
    found: set[str] = set()
    for recording in recordings.names():
        if FAMILY_OF_FILE.get(client_of(recording), client_of(recording)) == family.name:
            found |= used(family, recording)
    assert known_of(family) - found == UNRECORDED[family.name]


def known_of(family: Family) -> set[str]:
    known = {f"header {name}" for name in (*family.own_headers, *family.session_headers)}
    known |= {f"subagent header {name}" for name in family.subagent_headers}
    known |= {f"metadata {name}" for name in family.session_metadata}
    known |= {f"side {mark.kind}" for mark in family.side_marks}
    optional: Mapping[str, Any] = {
        "user agent": family.agents,
        "signature": family.signature,
        "session text": family.session_text,
        "cache key": family.cache_key_is_session,
        "subagent text": family.subagent_text,
        "appended": family.appended,
        "summary": family.summary,
    }
    return (
        known
        | {name for name, value in optional.items() if value}
        | {f"volatile {each.kind}" for each in family.volatile}
    )


def used(family: Family, recording: str) -> set[str]:
    """What of the table's row the recording's requests have."""
    found: set[str] = set()
    for row in recorded(recording):
        items, look, _ = seen(row)
        texts = [item.text for item in items if isinstance(item, MessageItem)]
        marks = (mark for mark in family.side_marks if mark.fits(look))
        found |= {f"side {mark.kind}" for mark in list(marks)[:1]}
        found |= {f"header {name}" for name in look.headers}
        found |= {f"metadata {name}" for name in look.metadata}
        facts = {
            "user agent": family.agents and family.agents.search(look.user_agent),
            "signature": family.signature and sight.found(family.signature, look.system),
            "session text": family.session_text
            and (
                family.session_text.search(look.system) or family.session_text.search(look.opening)
            ),
            "cache key": look.cache_key,
            "subagent text": family.subagent_text and is_subagent(family, look),
            "appended": family.appended and any(map(family.appended.match, texts)),
            "summary": family.summary and any(map(family.summary.match, texts)),
        }
        found |= {name for name, value in facts.items() if value}
        found |= {
            f"volatile {each.kind}" for each in family.volatile if any(each.finds(look.system))
        }
    return found


if __name__ == "__main__":
    recordings.KNOWN_HEADERS.write_text(json.dumps(header_sets(), indent=1) + "\n")
