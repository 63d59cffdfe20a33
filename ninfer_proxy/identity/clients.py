"""The table of client families: how each names its session, what its side requests look like, what of it is volatile.

One Family a client; the first that recognises a request is taken. To add a client, add an entry, a recording in tests/captures
and what the recording's requests are. Measured unless marked [S] (read in source) or [M] (from memory, harmless when wrong:
the request then counts as the main line).
"""

import re

from ninfer_proxy.compared import Unsteady
from ninfer_proxy.identity.family import Family, SideMark, Volatile, Where
from ninfer_proxy.identity.sight import Sight, found


def _re(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_STAMP = r"^(?:\[[^\]\n]{4,40}\] )?"  # OpenClaw's "[Mon 2026-11-30 06:11 UTC] "

OPENCLAW = Family(
    name="openclaw",
    signature=re.compile(
        r"running inside OpenClaw|<!-- openclaw:|^Generate a concise session title \("
        r"|^Write an Activity recap |^You are a context summarization assistant\."
    ),
    session_headers=("session_id", "x-session-affinity"),
    # A memory flush names a session made for it alone.
    session_text=re.compile(r"^Runtime: .*?\| sessionId=(?!internal-)([^\s|]+)", re.MULTILINE),
    cache_key_is_session=True,
    epoch_suffix=True,
    side_marks=(
        SideMark(
            "compaction",
            Where.SYSTEM,
            _re(r"^You are a context summarization assistant"),
            hint="contextWindow of the model's entry tells OpenClaw when to compact",
        ),
        SideMark("title", Where.SYSTEM, _re(r"^Generate a concise session title")),
        SideMark(
            "recap",
            Where.SYSTEM,
            _re(r"^Write an Activity recap"),
            hint='agents.defaults.utilityModel "" stops activity recaps',
        ),
        SideMark("memory_flush", Where.ASKED, _re(_STAMP + "Pre-compaction memory flush")),
        SideMark(
            "heartbeat",
            Where.ASKED,
            _re(_STAMP + r"(?:Follow the heartbeat monitor scratch|Read HEARTBEAT\.md if it)"),
            hint='agents.defaults.heartbeat.every "0m" stops heartbeats',
        ),
        SideMark(
            "exec_completion",
            Where.ASKED,
            _re(_STAMP + "An async command completion event was triggered"),
            hint="tools.exec.notifyOnExit false stops completion turns",
        ),
        SideMark(
            "subagent_completion",
            Where.ASKED,
            _re(_STAMP + r"A background task completed\. Use this result"),
        ),
        # [S] cron wakes of a session.
        SideMark("reminder", Where.ASKED, _re(_STAMP + "A scheduled reminder has been triggered")),
        # What a person types is stamped; every run of OpenClaw's own ends with the clock instead, configured prompts too.
        SideMark(
            "event",
            Where.ASKED,
            re.compile(r"\A(?!\[)[\s\S]*\nCurrent time: [^\n]+\nReference UTC: [^\n]+\s*\Z"),
        ),
    ),
    subagent_text=re.compile(
        r"^Runtime: .*?\| session=[^\s|]*:subagent:|^(?:\[[^\]\n]{4,40}\] )?\[Subagent Context\]",
        re.MULTILINE,
    ),
    appended=re.compile(r"\A<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"),
    appended_hint=(
        'OpenClaw appends it to each request and drops it later, except under the provider id "openai"'
    ),
    summary=_re(r"^The conversation history before this point was compacted"),
)

CODEX = Family(
    name="codex",
    agents=_re(r"^codex[_-]"),
    own_headers=("x-codex-window-id", "x-codex-turn-metadata"),
    session_headers=("thread-id", "session-id"),
    session_metadata=("thread_id", "session_id"),
    cache_key_is_session=True,
    side_marks=(
        # [M] the prompt of a local compaction.
        SideMark("compaction", Where.ASKED, _re(r"^You are performing a CONTEXT CHECKPOINT")),
    ),
    # [S] request_kind in x-codex-turn-metadata; `turn` and `prewarm` are the main line.
    request_kinds={"compaction": "compaction", "memory": "memory"},
    subagent_headers=("x-openai-subagent", "x-codex-parent-thread-id"),
    summary=_re(r"^Another language model started to solve this problem"),  # [M]
)

CLAUDE_CODE = Family(
    name="claude-code",
    agents=_re(r"^claude-cli/"),
    own_headers=("x-claude-code-session-id",),
    session_headers=("x-claude-code-session-id",),
    agent_header="x-claude-code-agent-id",
    side_marks=(
        SideMark("suggestion", Where.ASKED, _re(r"^\[SUGGESTION MODE")),  # [M]
        SideMark(
            "compaction",
            Where.ASKED,
            _re(r"^Your task is to create a detailed summary of"),  # [M]
        ),
        SideMark(
            "title",
            Where.SYSTEM,
            _re(r"generate a concise.{0,40}title|new conversation topic"),  # [M]
            bare=True,
        ),
    ),
    subagent_headers=("x-claude-code-agent-id", "x-claude-code-parent-agent-id"),
    summary=_re(r"^This session is being continued from a previous conversation"),  # [M]
    volatile=(
        Volatile(
            Unsteady.ATTRIBUTION,
            re.compile(r"^x-anthropic-billing-header:.*", re.MULTILINE),
            hint="CLAUDE_CODE_ATTRIBUTION_HEADER=0 stops the line that accounts for the client",
        ),
    ),
)

OPENCODE = Family(
    name="opencode",
    agents=_re(r"^opencode/"),
    session_headers=("x-session-id", "x-session-affinity"),
    cache_key_is_session=True,
    side_marks=(
        SideMark(
            "title", Where.OPENING, _re(r"^\W*Generate a title for this conversation"), bare=True
        ),
        SideMark(
            "compaction",
            Where.ASKED,
            _re(r"^Provide a detailed (?:prompt|summary) for continuing"),  # [M]
        ),
    ),
    subagent_headers=("x-parent-session-id",),
)

_JOB = r"(?=[\s\S]{0,600}\b(?:chat|conversation|session|thread|dialog(?:ue)?|message)s?\b)"
_GENERIC_MARKS = (
    SideMark(
        "title",
        Where.ASKED,
        _re(
            r"\A" + _JOB + r"[\s\S]{0,300}\b(?:generate|give|create|write|suggest|provide|as) "
            r"[^.?!\n]{0,60}\btitle\b"
        ),
        bare=True,
    ),
    SideMark(
        "title",
        Where.SYSTEM,
        _re(
            r"\A[\s\S]{0,80}\b(?:you (?:name|title) (?:chat|conversation|session|thread)s?"
            r"|(?:generate|create|write)s? [^.?!\n]{0,60}\btitles?\b[^.?!\n]{0,60}\b"
            r"(?:chat|conversation|session|thread|message)s?)\b"
        ),
        bare=True,
    ),
    # Open WebUI's background jobs: tags, follow-up questions, search queries. [M]
    SideMark("task", Where.ASKED, _re(r"^### Task:\s+(?:Generate|Suggest|Analyze)"), bare=True),
)
_GENERIC_HEADERS = (
    "x-session-id",
    "session-id",
    "session_id",
    "thread-id",
    "x-session-key",
    "x-conversation-id",
    "conversation_id",
    "x-openwebui-chat-id",
    "x-grok-conv-id",
    "x-dynamo-session-id",
    "x-smg-routing-key",
    "x-session-affinity",
    "x-claude-code-session-id",
)
_GENERIC_METADATA = (
    "session_id",
    "conversation_id",
    "thread_id",
    "chat_id",
    "litellm_session_id",
)
_GENERIC_SUMMARY = _re(
    r"^\W{0,4}(?:(?:here is )?(?:a |the )?summary of (?:the |our |all )?(?:earlier|previous|prior)"
    r"|(?:previous |earlier )?conversation summary)"
)

AGENTS_SDK = Family(
    name="openai-agents",
    agents=_re(r"^Agents/"),
    session_headers=_GENERIC_HEADERS,
    session_metadata=_GENERIC_METADATA,
    side_marks=_GENERIC_MARKS,
)
VERCEL = Family(
    name="vercel",
    agents=_re(r"^ai/|\bai-sdk"),
    session_headers=_GENERIC_HEADERS,
    session_metadata=_GENERIC_METADATA,
    side_marks=_GENERIC_MARKS,
)
_TIME_OF_DAY = _re(
    r"(?<![\d:.+-])\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?(?![\d:])(?:\s?[ap](?:\.m\.|m\b))?"
)
# How a sentence begins that tells the time: "Current time: …", "Today is …", "It is …", "- date: …", "<time>…".
_TELLS_TIME = _re(
    r"(?:^|[.!?]\s)\W{0,8}(?:(?:the |your )?(?:current |local |system |today's )?"
    r"(?:date|time|clock|timestamp|datetime)\b[^\d:=>]{0,24}?(?:[:=>]|\bis\b)"
    r"|it is|it's|today is|now is|now:)"
)

GENERIC = Family(
    name="generic",
    session_headers=_GENERIC_HEADERS,
    session_metadata=_GENERIC_METADATA,
    side_marks=_GENERIC_MARKS,
    volatile=(
        Volatile(
            Unsteady.ATTRIBUTION,
            re.compile(r"^x-[a-z0-9-]*(?:billing|attribution)[a-z0-9-]*:.*", re.MULTILINE),
        ),
        Volatile(
            Unsteady.CLOCK,
            _TIME_OF_DAY,
            after=_TELLS_TIME,
            written="--:--",
            hint="the clock in the instructions changes with each request, and what follows it is computed anew",
        ),
    ),
)

FAMILIES: tuple[Family, ...] = (OPENCLAW, CODEX, CLAUDE_CODE, OPENCODE, AGENTS_SDK, VERCEL)
VOLATILE: tuple[Volatile, ...] = tuple(
    each for family in (*FAMILIES, GENERIC) for each in family.volatile
)
"""Of all clients: what one of them does, another may copy."""


def family_of(sight: Sight) -> Family:
    """The first family that recognises the request; GENERIC if none does."""
    return next((family for family in FAMILIES if family.recognises(sight)), GENERIC)


def appends(text: str) -> bool:
    """Is this a user message that some client appends to its requests by itself?"""
    return any(
        family.appended is not None and family.appended.match(text) is not None
        for family in FAMILIES
    )


def is_summary(text: str) -> bool:
    """Is this the message by which a known client replaces a compacted history?"""
    return any(family.summary is not None and found(family.summary, text) for family in FAMILIES)


def may_be_summary(text: str) -> bool:
    """Does this read like a summary of earlier turns, whoever wrote it?"""
    return found(_GENERIC_SUMMARY, text, 200)


def side_hint(kind: str) -> str:
    """What a client setting can do about a kind of side request ('' where nothing is known)."""
    marks = (mark for family in FAMILIES for mark in family.side_marks)
    return next((mark.hint for mark in marks if mark.kind == kind and mark.hint), "")


def appended_hint(text: str) -> str:
    """Why such an appended message vanishes ('' where nothing is known)."""
    return next(
        (
            family.appended_hint
            for family in FAMILIES
            if family.appended is not None and family.appended.match(text)
        ),
        "",
    )
