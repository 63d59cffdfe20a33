"""What can be known of a client, as values: the row of the table of client families. Knows no client.

name        a session: headers, metadata, cache key, or a line of the prompt
side        requests beside the main line, by their marks
volatile    what changes from request to request without being meant: appended notes, attribution lines, clocks
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ninfer_proxy.compared import Unsteady
from ninfer_proxy.identity.sight import Sight, found

_LINE_REACH = 400
"""Characters before a volatile text in which what introduces it is looked for: lines may be megabytes."""


class Where(StrEnum):
    """The text a mark is looked for in (see Sight)."""

    SYSTEM = "system"
    OPENING = "opening"
    ASKED = "asked"


@dataclass(frozen=True, slots=True)
class SideMark:
    """How a side request looks. `bare`: only without tools and before any answer. `hint` says what a client setting can do."""

    kind: str
    where: Where
    pattern: re.Pattern[str]
    bare: bool = False
    hint: str = ""

    def fits(self, sight: Sight) -> bool:
        if self.bare and (sight.tools or sight.answered):
            return False
        return found(self.pattern, getattr(sight, self.where))


@dataclass(frozen=True, slots=True)
class Volatile:
    """Text of a head that changes without being meant: what `pattern` finds, if `after` finds something before it in its line.

    `written` can stand in its place; `hint` says what a client setting can do.
    """

    kind: Unsteady
    pattern: re.Pattern[str]
    after: re.Pattern[str] | None = None
    written: str = ""
    hint: str = ""

    def finds(self, text: str) -> Iterator[re.Match[str]]:
        for match in self.pattern.finditer(text):
            near = text[max(0, match.start() - _LINE_REACH) : match.start()]
            if self.after is None or self.after.search(near[near.rfind("\n") + 1 :]):
                yield match


@dataclass(frozen=True, slots=True)
class Family:
    """What is known of one client. Header and metadata names are lower case, most specific first.

    `epoch_suffix`: `:n` at the end of a cache key (and of session ids that agree with `x-session-affinity`) counts
    compactions and is no part of the session. `appended` marks user messages that are gone in the next turn;
    `summary` the message that replaces a compacted history; `volatile` what changes in tools and system text.
    """

    name: str
    agents: re.Pattern[str] | None = None
    own_headers: tuple[str, ...] = ()
    signature: re.Pattern[str] | None = None
    session_headers: tuple[str, ...] = ()
    agent_header: str | None = None
    session_metadata: tuple[str, ...] = ()
    session_text: re.Pattern[str] | None = None
    cache_key_is_session: bool = False
    epoch_suffix: bool = False
    side_marks: tuple[SideMark, ...] = ()
    request_kinds: Mapping[str, str] = field(default_factory=dict)
    subagent_headers: tuple[str, ...] = ()
    subagent_text: re.Pattern[str] | None = None
    appended: re.Pattern[str] | None = None
    appended_hint: str = ""
    summary: re.Pattern[str] | None = None
    volatile: tuple[Volatile, ...] = ()

    def recognises(self, sight: Sight) -> bool:
        return (
            any(name in sight.headers for name in self.own_headers)
            or (self.agents is not None and self.agents.search(sight.user_agent) is not None)
            or (self.signature is not None and found(self.signature, sight.system))
        )
