"""Which session a request names, and how far that name can be trusted. Knows the family table, not what is stored.

session:ID   one session: what has the same head belongs to one conversation
key:ID       a cache key: related requests, not necessarily one conversation
user:ID      a person
side:...     side requests of a kind, where they name no session
''           nothing named
"""

import json
import re
from collections.abc import Iterator
from enum import StrEnum

from blake3 import blake3

from ninfer_proxy.identity.family import Family
from ninfer_proxy.identity.sight import Sight

_EPOCH = re.compile(r":\d+$")
# A session named after another one with its purpose behind it ("main:heartbeat").
_PURPOSE = re.compile(r"^(.+):(heartbeat|title|summary|recap|compaction|memory)$")
_LONGEST_NAME = 160


class Level(StrEnum):
    """What a scope stands for, strongest first."""

    SESSION = "session"
    KEY = "key"
    USER = "user"
    SIDE = "side"
    NONE = ""


def level(scope: str) -> Level:
    return Level(scope.partition(":")[0])


def scope_of(family: Family, sight: Sight) -> tuple[str, str]:
    """(scope, evidence): the first name of a session that a request carries."""
    for kind, name, evidence in _names(family, sight):
        if name:
            return f"{kind}:{_short(name)}", evidence
    return "", "no session named"


def side_kind_of(family: Family, sight: Sight) -> str | None:
    """The kind of side request this is known to be."""
    stated = family.request_kinds.get(_request_kind(sight)) if family.request_kinds else None
    return stated or next((mark.kind for mark in family.side_marks if mark.fits(sight)), None)


def purpose(scope: str) -> tuple[str, str] | None:
    """(scope of the session proper, side kind) for a session that is named after another one."""
    match = _PURPOSE.match(scope)
    if match is None or level(scope) is not Level.SESSION:
        return None
    return match[1], match[2]


def is_subagent(family: Family, sight: Sight) -> bool:
    """Does the sender say that it works for another conversation?"""
    if any(name in sight.headers or name in sight.metadata for name in family.subagent_headers):
        return True
    text = family.subagent_text
    if text is None:
        return False
    return any(text.search(each) for each in (sight.system, sight.opening, sight.asked))


def _names(family: Family, sight: Sight) -> Iterator[tuple[Level, str, str]]:
    for header in family.session_headers:
        name = _session(family, sight, sight.headers.get(header, ""))
        agent = sight.headers.get(family.agent_header or "", "")
        yield Level.SESSION, f"{name}/{agent}" if agent and name else name, f"header {header}"
    for field in family.session_metadata:
        value = sight.metadata.get(field)
        yield Level.SESSION, value if isinstance(value, str) else "", f"metadata {field}"
    yield Level.SESSION, _user_session(sight), "metadata user_id"
    key = sight.cache_key or ""
    if family.cache_key_is_session:
        key = _EPOCH.sub("", key) if family.epoch_suffix else key
        yield Level.SESSION, key, "prompt_cache_key"
    if family.session_text is not None:
        yield Level.SESSION, _named_in_text(family.session_text, sight), "sessionId in the prompt"
    yield Level.KEY, key, "prompt_cache_key"
    yield Level.USER, sight.user or "", "user"
    user_id = sight.metadata.get("user_id")
    yield Level.USER, user_id if isinstance(user_id, str) else "", "metadata user_id"


def _session(family: Family, sight: Sight, name: str) -> str:
    counted = family.epoch_suffix and sight.headers.get("x-session-affinity") == name
    return _EPOCH.sub("", name) if counted else name


def _user_session(sight: Sight) -> str:
    """Claude Code writes its session into metadata.user_id as JSON."""
    user_id = sight.metadata.get("user_id")
    if not isinstance(user_id, str) or not user_id.startswith("{"):
        return ""
    session = _json_field(user_id, "session_id")
    return session if isinstance(session, str) else ""


def _named_in_text(pattern: re.Pattern[str], sight: Sight) -> str:
    """The session that the prompt tells of: the last one in the system text, else in the first user message."""
    names = pattern.findall(sight.system) or pattern.findall(sight.opening)
    return str(names[-1]) if names else ""


def _request_kind(sight: Sight) -> str:
    """What Codex says the request is for."""
    stated = sight.headers.get("x-codex-turn-metadata") or sight.metadata.get(
        "x-codex-turn-metadata"
    )
    kind = _json_field(stated, "request_kind") if isinstance(stated, str) else None
    return kind if isinstance(kind, str) else ""


def _json_field(text: str, name: str) -> object:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value.get(name) if isinstance(value, dict) else None


def _short(name: str) -> str:
    """Names are stored and shown; a client may send any length."""
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[:100]}~{blake3(name.encode('utf-8', 'surrogatepass')).hexdigest(length=16)}"
