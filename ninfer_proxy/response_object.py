"""The response object of the Responses API, built from a turn and its outcome. Pure; knows no transport and no table."""

from collections.abc import Mapping, Sequence
from typing import Any

from ninfer_proxy.errors import ProxyError
from ninfer_proxy.events import Usage
from ninfer_proxy.types import Decision, Item, Reason, Turn

# Our reasons that OpenAI has a word for. The rest are about the server's memory, of which OpenAI says nothing.
_MISSES: Mapping[Reason, str] = {
    Reason.MODEL_CHANGED: "model_changed",
    Reason.TOOLS_CHANGED: "tools_changed",
    Reason.REASONING_EFFORT_CHANGED: "reasoning_effort_changed",
    Reason.CONTEXT_COMPACTED: "context_compacted",
    Reason.INSTRUCTIONS_CHANGED: "input_changed",
    Reason.INPUT_CHANGED: "input_changed",
    Reason.TRANSIENT_ITEM: "input_changed",
    Reason.BRANCH: "input_changed",
}


def response_object(
    turn: Turn,
    *,
    response_id: str,
    created_at: int,
    status: str,
    output: Sequence[Item] = (),
    usage: Usage | None = None,
    completed_at: int | None = None,
    incomplete_reason: str | None = None,
    error: ProxyError | None = None,
    decision: Decision | None = None,
) -> dict[str, Any]:
    """The response object with every key that strict clients look for. Times are Unix seconds.

    `status` is in_progress, completed, incomplete, cancelled or failed; `usage`, `completed_at` and `decision` are None
    while the turn runs.
    """
    return {
        "id": response_id,
        "object": "response",
        "created_at": created_at,
        "completed_at": completed_at,
        "status": status,
        "background": False,
        "error": {"code": error.code, "message": error.message} if error else None,
        "incomplete_details": {"reason": incomplete_reason} if incomplete_reason else None,
        "output": [item.raw for item in output],
        "usage": usage_object(usage) if usage else None,
        "prompt_cache_diagnostics": cache_diagnostics(decision) if decision else None,
        **_settings(turn),
    }


def _settings(turn: Turn) -> dict[str, Any]:
    """The part of the response object that repeats the request."""
    echo = turn.echo
    return {
        "model": turn.model,
        "previous_response_id": turn.previous_response_id,
        "instructions": turn.instructions,
        "tools": [tool_object(tool) for tool in turn.tools_raw],
        "tool_choice": echo.get("tool_choice") or "auto",
        "parallel_tool_calls": _or(echo.get("parallel_tool_calls"), True),
        "max_tool_calls": echo.get("max_tool_calls"),
        "max_output_tokens": turn.max_output_tokens,
        "temperature": turn.sampling.temperature,
        "top_p": turn.sampling.top_p,
        "presence_penalty": turn.sampling.presence_penalty,
        "frequency_penalty": turn.sampling.frequency_penalty,
        "top_logprobs": _or(echo.get("top_logprobs"), 0),
        "reasoning": {"effort": None, "summary": None} | (echo.get("reasoning") or {}),
        "text": {"format": {"type": "text"}} | (echo.get("text") or {}),
        "truncation": echo.get("truncation") or "disabled",
        "service_tier": echo.get("service_tier") or "default",
        "store": turn.store,
        "metadata": dict(turn.metadata),
        "safety_identifier": echo.get("safety_identifier"),
        "prompt_cache_key": turn.client.prompt_cache_key,
        "user": turn.client.user,
    }


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def tool_object(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """A tool as responses show it: functions with all their keys (also where they came nested), others as they were sent."""
    if raw.get("type", "function") != "function":
        return raw
    spec = raw.get("function") if isinstance(raw.get("function"), Mapping) else raw
    assert isinstance(spec, Mapping)
    return {
        "type": "function",
        "name": spec.get("name"),
        "description": spec.get("description"),
        "parameters": spec.get("parameters"),
        "strict": spec.get("strict"),
    }


def usage_object(usage: Usage) -> dict[str, Any]:
    """Usage in Responses form. Nothing is charged for writing to the cache, so `cache_write_tokens` is 0."""
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


def cache_diagnostics(decision: Decision) -> dict[str, Any]:
    """OpenAI's `prompt_cache_diagnostics`, with our own reason beside it and all else that is known under `ninfer`.

    `type` and `reason` keep to OpenAI's closed lists: its SDK complains about any other word.
    """
    missed = _MISSES.get(decision.reason)
    return {
        **({"type": "cache_miss", "reason": missed} if missed else {"type": _type(decision)}),
        "cache_missed_tokens": decision.prefilled_tokens,
        "comparison_reusable_tokens": decision.reused_tokens,
        "ninfer_reason": decision.reason.value,
        "ninfer": {
            "detail": decision.detail,
            "conversation": decision.conversation,
            "slot": decision.slot,
            "match": decision.match.value,
            "evidence": list(decision.evidence),
            "source_tier": decision.source_tier,
            "source_kind": decision.source_kind,
            "difference": decision.difference,
            "differs_at": decision.differs_at,
            "stabilised": list(decision.stabilised),
            "saved_tokens": decision.saved_tokens,
        },
    }


def _type(decision: Decision) -> str:
    if decision.reason is Reason.CACHE_HIT:
        return "cache_hit"
    nothing_before = decision.reason in (Reason.NEW_CONVERSATION, Reason.SIDE_REQUEST)
    return "comparison_response_not_found" if nothing_before else "unavailable"
