"""Checks of reuse: what was computed again, in which slot. Each judges evidence: None, or why it doesn't hold."""

from collections.abc import Sequence

from tests.cases.evidence import Evidence

Verdict = str | None


def cached_min(seen: Evidence, step: str, of: str, frac: float, slack_tokens: int = 0) -> Verdict:
    """Anchors stand at exact tokens, so no gap is allowed for."""
    cached, wanted = seen.cached(step), frac * seen.tokens(of) - slack_tokens
    if cached >= wanted:
        return None
    return f"{cached} of {seen.input(step)} prompt tokens cached, wanted {wanted:.0f} (of {seen.tokens(of)}); {_why(seen, step)}"


def cached_max(seen: Evidence, step: str, max: int) -> Verdict:
    cached = seen.cached(step)
    return None if cached <= max else f"{cached} tokens cached, at most {max} allowed"


def fresh_max(seen: Evidence, step: str, of: str, frac: float) -> Verdict:
    fresh, most = seen.input(step) - seen.cached(step), frac * seen.tokens(of)
    return (
        None
        if fresh <= most
        else f"{fresh} tokens computed, at most {most:.0f} allowed; {_why(seen, step)}"
    )


def total_prefill_max(seen: Evidence, steps: Sequence[str], of: str, frac: float) -> Verdict:
    fresh = sum(seen.input(step) - seen.cached(step) for step in steps)
    most = frac * seen.tokens(of)
    return (
        None if fresh <= most else f"{fresh} tokens computed together, at most {most:.0f} allowed"
    )


def cached_min_vs_progress(seen: Evidence, step: str, of: str, frac: float) -> Verdict:
    """`of` was cut in its prefill; what it had computed by then is what counts."""
    cut = seen.answer(of).cut
    if cut is None:
        return f"{of} was not cut"
    cached, wanted = seen.cached(step), frac * cut.prompt_tokens_done
    return (
        None
        if cached >= wanted
        else f"{cached} tokens cached, wanted {wanted:.0f} (of {cut.prompt_tokens_done} computed)"
    )


def engine_prefill_zero(seen: Evidence, steps: Sequence[str]) -> Verdict:
    """No prompt of these steps reached the engine's lanes."""
    ran = [step for step in steps if seen.answer(step).prompt is not None]
    return f"{', '.join(ran)} reached the engine" if ran else None


def cached_matches_engine(seen: Evidence, steps: Sequence[str]) -> Verdict:
    """What a client is told equals what the engine reported."""
    for step in steps:
        told, explained = seen.cached(step), seen.answer(step).explained
        if explained is None or explained["reused_tokens"] != told:
            return f"{step} tells {told} cached tokens, the engine {explained and explained['reused_tokens']}"
    return None


def input_tokens_independent_of_cache(seen: Evidence, steps: Sequence[str]) -> Verdict:
    """The count that is told is the whole prompt's."""
    for step in steps:
        told, fed = seen.input(step), len(seen.prompt(step))
        if told != fed:
            return f"{step} tells {told} input tokens, the engine was fed {fed}"
    return None


def same_slot(seen: Evidence, steps: Sequence[str]) -> Verdict:
    slots = {step: seen.answer(step).slot for step in steps}
    if None in slots.values():
        return f"no slot is known of {[step for step in slots if slots[step] is None]}"
    return None if len(set(slots.values())) == 1 else f"slots {slots}"


def max_slots(seen: Evidence, steps: Sequence[str], max: int) -> Verdict:
    slots = {seen.answer(step).slot for step in steps}
    return None if len(slots) <= max else f"slots {sorted(slots, key=str)}, at most {max} allowed"


def stops_within(seen: Evidence, of: str, seconds: float) -> Verdict:
    cut = seen.answer(of).cut
    if cut is None:
        return f"{of} was not cut"
    if cut.stopped_s is None:
        return f"the engine still ran {of} long after its client had left"
    return None if cut.stopped_s <= seconds else f"the engine ran on for {cut.stopped_s:.2f} s"


def _why(seen: Evidence, step: str) -> str:
    """The proxy's own explanation, for reports."""
    explained = seen.answer(step).explained or {}
    return f"{explained.get('reason')}: {explained.get('detail')}"


CHECKS = (
    cached_min,
    cached_max,
    fresh_max,
    total_prefill_max,
    cached_min_vs_progress,
    engine_prefill_zero,
    cached_matches_engine,
    input_tokens_independent_of_cache,
    same_slot,
    max_slots,
    stops_within,
)
