"""What OpenClaw meant by a request, read from its body by the rules measured on the real client. Pure; doesn't know the proxy."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

Kind = Literal[
    "user turn",
    "tool result",
    "nudge",
    "heartbeat",
    "exec completion",
    "sub-agent completion",
    "memory flush",
    "summary",
    "title",
    "recap",
    "other",
]
Body = Mapping[str, Any]

# A nudge repeats a user turn that brought no visible answer, with a sentence of the client's own.
MAIN_LINE: frozenset[Kind] = frozenset({"user turn", "tool result", "nudge"})
CARRIER = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"
SYSTEM = ("system", "developer")
COMPACTED = "was compacted into the following summary"

# Openings of the last real user message, in runs that the client starts by itself.
EVENTS: tuple[tuple[str, Kind], ...] = (
    ("Follow the heartbeat monitor scratch context", "heartbeat"),
    ("An async command completion event was triggered", "exec completion"),
    ("A background task completed. Use this result", "sub-agent completion"),
    ("Pre-compaction memory flush.", "memory flush"),
)
# What the client says for itself when an answer showed the user nothing.
NUDGE = re.compile(
    r"The previous (assistant turn|attempt) .{0,120}did not produce a user-visible answer",
    re.DOTALL,
)
# Openings of system text or user text, in requests without tools.
JOBS: tuple[tuple[str, Kind], ...] = (
    ("You are a context summarization assistant.", "summary"),
    ("Generate a concise session title", "title"),
    ("Write an Activity recap", "recap"),
)


def kind_of(body: Body, history: Sequence[Mapping[str, Any]]) -> Kind:
    """`history` is the whole input, including what `previous_response_id` stands for."""
    tools = tool_names(body)
    if not tools:
        texts = [str(body.get("instructions") or ""), *map(text_of, history)]
        return next((kind for start, kind in JOBS if any(start in text for text in texts)), "other")
    if tools <= {"read", "write"}:
        return "memory flush"
    asked = last_user_text(history)
    event = next((kind for start, kind in EVENTS if start in asked[:400]), None)
    if event:
        return event
    if "openclaw" not in tools:  # the interactive tool set has it, those of events do not
        return "heartbeat" if "Current time:" in asked else "other"
    if _awaits_answer_to_tool(history):
        return "tool result"
    return "nudge" if NUDGE.search(asked[:400]) else "user turn"


def session_of(body: Body, headers: Mapping[str, str]) -> str | None:
    """The client's session id: header, else the prompt's own text, else the cache key without its counter."""
    if header := headers.get("session_id"):
        return header
    for text in (str(body.get("instructions") or ""), *map(text_of, items_of(body)[:2])):
        if found := re.search(r"\bsessionId=([^\s|]+)", text):
            return found[1]
    key = body.get("prompt_cache_key")
    return re.sub(r":\d+$", "", key) if isinstance(key, str) else None


def head_of(body: Body, history: Sequence[Mapping[str, Any]]) -> str:
    """Tools and system text as one string: what a later turn must not have to prefill again."""
    system = [str(body.get("instructions") or "")]
    system += [text_of(item) for item in history if item.get("role") in SYSTEM]
    return json.dumps(body.get("tools", []), ensure_ascii=False) + "\n".join(system)


def items_of(body: Body) -> list[dict[str, Any]]:
    given = body.get("input", [])
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return [item for item in given if isinstance(item, dict)]


def tool_names(body: Body) -> set[str]:
    return {str(tool.get("name")) for tool in body.get("tools") or ()}


def text_of(item: Mapping[str, Any]) -> str:
    content = item.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content or () if isinstance(part, dict))


def is_carrier(item: Mapping[str, Any]) -> bool:
    """The client's own notes to the model, sent as a user message that later turns may not have."""
    return item.get("role") == "user" and text_of(item).startswith(CARRIER)


def last_user_text(history: Sequence[Mapping[str, Any]]) -> str:
    users = (item for item in reversed(history) if item.get("role") == "user")
    return next((text_of(item) for item in users if not is_carrier(item)), "")


def _awaits_answer_to_tool(history: Sequence[Mapping[str, Any]]) -> bool:
    for item in reversed(history):
        if not is_carrier(item):
            return item.get("type") == "function_call_output"
    return False
