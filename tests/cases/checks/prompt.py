"""Checks of the prompt as the engine was fed it. Each judges evidence: None, or why it doesn't hold."""

from collections.abc import Sequence

from tests.cases.evidence import Evidence

Verdict = str | None


def prompt_contains(seen: Evidence, step: str, all: Sequence[str]) -> Verdict:
    text = seen.text.whole(seen.prompt(step))
    missing = [each for each in all if each not in text]
    return f"the prompt lacks {missing}" if missing else None


def prompt_contains_text(seen: Evidence, step: str, all: Sequence[str]) -> Verdict:
    """As plain text, not as control tokens."""
    text = seen.text.plain(seen.prompt(step))
    missing = [each for each in all if each not in text]
    return f"the prompt's plain text lacks {missing}" if missing else None


def prompt_not_contains(seen: Evidence, step: str, any: Sequence[str]) -> Verdict:
    text = seen.text.whole(seen.prompt(step))
    found = [each for each in any if each in text]
    return f"the prompt holds {found}" if found else None


def prompt_order(seen: Evidence, step: str, order: Sequence[str]) -> Verdict:
    text, at = seen.text.whole(seen.prompt(step)), 0
    for each in order:
        found = text.find(each, at)
        if found < 0:
            return f"{each!r} is not in the prompt behind what should come before it"
        at = found + len(each)
    return None


def prompt_token_equal(seen: Evidence, steps: Sequence[str]) -> Verdict:
    different = [step for step in steps if seen.prompt(step) != seen.prompt(steps[0])]
    return f"the prompts of {different} differ from {steps[0]}'s" if different else None


def prompt_has_output_of(seen: Evidence, step: str, steps: Sequence[str]) -> Verdict:
    text = seen.text.whole(seen.prompt(step))
    for each in steps:
        said = seen.answer(each)
        parts = [said.text.strip(), *(name for _, name, _ in said.calls)]
        parts = [part for part in parts if part] or [said.reasoning.strip()]
        if not any(parts):
            return f"{each} has no output"
        if missing := [part for part in parts if part not in text]:
            return f"the prompt lacks {missing} of {each}"
    return None


def control_token_count_equals_plain(seen: Evidence, step: str) -> Verdict:
    """The same request with its control words broken has as many control tokens."""
    if step not in seen.plain or seen.plain[step].prompt is None:
        return f"{step} was not sent with plain words"
    mine = seen.text.control_tokens(seen.prompt(step))
    plain = seen.text.control_tokens(seen.plain[step].prompt or ())
    return None if mine == plain else f"{mine} control tokens, {plain} with plain words"


CHECKS = (
    prompt_contains,
    prompt_contains_text,
    prompt_not_contains,
    prompt_order,
    prompt_token_equal,
    prompt_has_output_of,
    control_token_count_equals_plain,
)
