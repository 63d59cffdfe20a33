"""Checks of what the model said, as a client got it. Each judges evidence: None, or why it doesn't hold."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.cases.evidence import Evidence, told

Verdict = str | None

CHAT_FINISH = {"completed": "stop", "incomplete": "length"}


def text_equals(seen: Evidence, step: str, text: str) -> Verdict:
    said = seen.answer(step).text
    return None if said == text else f"said {said!r}, wanted {text!r}"


def text_equals_trimmed(seen: Evidence, step: str, text: str) -> Verdict:
    said = seen.answer(step).text.strip()
    return None if said == text.strip() else f"said {said!r}, wanted {text.strip()!r}"


def text_not_contains(seen: Evidence, step: str, any: Sequence[str]) -> Verdict:
    return _without(seen.answer(step).text, any, "text")


def text_empty(seen: Evidence, step: str) -> Verdict:
    said = seen.answer(step).text
    return f"said {said!r}" if said else None


def reasoning_not_contains(seen: Evidence, step: str, any: Sequence[str]) -> Verdict:
    return _without(seen.answer(step).reasoning, any, "reasoning")


def raw_arguments_not_contains(seen: Evidence, step: str, any: Sequence[str]) -> Verdict:
    return _without(" ".join(raw for _, _, raw in seen.answer(step).calls), any, "arguments")


def delta_not_contains(seen: Evidence, step: str, any: Sequence[str]) -> Verdict:
    deltas = seen.answer(step).deltas
    if not deltas:
        return f"{step} has no deltas ({told(seen.answer(step))})"
    return _without(" ".join(deltas), any, "a delta")


def no_foreign_marker(seen: Evidence, step: str, any: Sequence[str]) -> Verdict:
    """Nothing of another client's in what was fed or said."""
    answer = seen.answer(step)
    return _without(seen.text.whole(seen.prompt(step)), any, "the prompt") or _without(
        answer.said, any, "the output"
    )


def same_text(seen: Evidence, steps: Sequence[str]) -> Verdict:
    said = {step: seen.answer(step).said for step in steps if seen.answer(step).status == 200}
    if len(said) < len(steps):
        return f"not all of {list(steps)} were answered"
    return None if len(set(said.values())) == 1 else f"said {said}"


def same_for_all_splits(seen: Evidence, steps: Sequence[str]) -> Verdict:
    return same_text(seen, steps)


def equals_cold(seen: Evidence, step: str) -> Verdict:
    if step not in seen.cold or seen.cold[step].status != 200:
        return f"{step} was not answered cold"
    if seen.cold[step].cached_tokens:
        return f"the cold run reused {seen.cold[step].cached_tokens} tokens"
    warm, cold = seen.answer(step).said, seen.cold[step].said
    return None if warm == cold else f"said {warm}, cold {cold}"


def tool_calls(seen: Evidence, step: str, equals: Sequence[Mapping[str, Any]]) -> Verdict:
    try:
        made = [
            {"name": name, "arguments": json.loads(raw)} for _, name, raw in seen.answer(step).calls
        ]
    except ValueError as error:
        return f"arguments are no JSON: {error}"
    # Spelled out, since 75 == 75.0 and True == 1 for Python but not for clients.
    same = json.dumps(made, sort_keys=True) == json.dumps(list(equals), sort_keys=True)
    return None if same else f"made {made}, wanted {list(equals)}"


def tool_call_count(seen: Evidence, step: str, equals: int) -> Verdict:
    answer = seen.answer(step)
    if answer.status != 200:
        return f"{step}: {told(answer)}"
    return None if len(answer.calls) == equals else f"{len(answer.calls)} calls: {answer.calls}"


def tool_call_names_not_contain(seen: Evidence, step: str, any: Sequence[str]) -> Verdict:
    return _without(" ".join(name for _, name, _ in seen.answer(step).calls), any, "a call's name")


def no_silent_truncation(seen: Evidence, step: str) -> Verdict:
    """An answer that ends at its limit says so."""
    answer = seen.answer(step)
    limits = (answer.sent.get(name) for name in ("max_output_tokens", "max_tokens"))
    limit = next((each for each in limits if each is not None), None)
    full = limit is not None and (answer.output_tokens or 0) >= limit
    if not full or _finish(seen, step) in ("length", "incomplete"):
        return None
    return f"{answer.output_tokens} tokens at a limit of {limit}, but it ended with {_finish(seen, step)!r}"


def finish_reason(
    seen: Evidence, step: str, equals: str | None = None, one_of: Sequence[str] = ()
) -> Verdict:
    """As chat completions name it; a response's status is translated."""
    allowed = {*one_of, *([equals] if equals is not None else [])}
    found = _finish(seen, step)
    if not seen.answer(step).is_chat:
        calls = found == "completed" and seen.answer(step).calls
        found = "tool_calls" if calls else CHAT_FINISH.get(str(found), found)
    return None if found in allowed else f"finished with {found!r}"


def _finish(seen: Evidence, step: str) -> str | None:
    answer = seen.answer(step)
    if not answer.is_chat:
        return answer.final.get("status")
    choices = [c for event in answer.events for c in event.data.get("choices") or ()]
    reasons = [c.get("finish_reason") for c in choices or answer.json.get("choices") or ()]
    return next((reason for reason in reversed(reasons) if reason), None)


def _without(text: str, any: Sequence[str], what: str) -> Verdict:
    found = [each for each in any if each in text]
    return f"{what} holds {found}: {text[:300]!r}" if found else None


CHECKS = (
    text_equals,
    text_equals_trimmed,
    text_not_contains,
    text_empty,
    reasoning_not_contains,
    raw_arguments_not_contains,
    delta_not_contains,
    no_foreign_marker,
    same_text,
    same_for_all_splits,
    equals_cold,
    tool_calls,
    tool_call_count,
    tool_call_names_not_contain,
    no_silent_truncation,
    finish_reason,
)
