"""Checks of the wire: statuses, errors, event ladders, usage. Each judges evidence: None, or why it doesn't hold."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.cases.answer import (
    ARGUMENTS_DELTA,
    REASONING_DELTAS,
    TERMINAL,
    TEXT_DELTA,
    Answer,
)
from tests.cases.evidence import Evidence, told
from tests.cases.sse import DONE

Verdict = str | None

CONTRADICTION = "{field} of item {item} is {found!r} and {before!r}"


def status(seen: Evidence, step: str, one_of: Sequence[int]) -> Verdict:
    answer = seen.answer(step)
    return None if answer.status in one_of and not answer.trouble else told(answer)


def statuses_subset(seen: Evidence, steps: Sequence[str], one_of: Sequence[int]) -> Verdict:
    return next((f"{step}: {bad}" for step in steps if (bad := status(seen, step, one_of))), None)


def error(
    seen: Evidence,
    step: str,
    type: str | None = None,
    param: str | None = None,
    code: str | None = None,
    code_one_of: Sequence[str] = (),
    message_contains: str = "",
) -> Verdict:
    found = seen.answer(step).error
    if not found:
        return f"{step} has no error ({told(seen.answer(step))})"
    codes = {*code_one_of, *([code] if code is not None else [])}
    wanted = {"type": type, "param": param}
    wrong = [key for key, value in wanted.items() if value is not None and found.get(key) != value]
    if codes and found.get("code") not in codes:
        wrong.append("code")
    if message_contains not in str(found.get("message")):
        wrong.append("message")
    return f"{', '.join(wrong)} of the error {found}" if wrong else None


def header_present_if(seen: Evidence, step: str, header: str, status: int) -> Verdict:
    answer = seen.answer(step)
    if answer.status != status or header.lower() in answer.headers:
        return None
    return f"status {status} without {header}"


# --- streams ------------------------------------------------------------------------------------


def events_subsequence(seen: Evidence, step: str, sequence: Sequence[str]) -> Verdict:
    types = iter([event.type for event in seen.answer(step).events])
    missing = [wanted for wanted in sequence if wanted not in types]
    return f"no {missing[0]} where it should be" if missing else None


def seq_contiguous(seen: Evidence, step: str) -> Verdict:
    events = [event for event in seen.answer(step).events if event.text != DONE]
    numbers = [event.data.get("sequence_number") for event in events]
    if not numbers:
        return "no events"
    return None if numbers == list(range(len(numbers))) else f"sequence numbers {numbers}"


def items_nested(seen: Evidence, step: str) -> Verdict:
    """An item is done before the next is added, and each is done."""
    opened: int | None = None
    added = 0
    for event in seen.answer(step).events:
        index = event.data.get("output_index")
        if event.type == "response.output_item.added":
            if opened is not None:
                return f"item {index} is added before item {opened} is done"
            opened, added = index, added + 1
        elif event.type == "response.output_item.done":
            if opened != index:
                return f"item {index} is done while {opened} is open"
            opened = None
    if not added:
        return "no item was added"
    return None if opened is None else f"item {opened} is never done"


def ids_consistent(seen: Evidence, step: str, fields: Sequence[str]) -> Verdict:
    """All events about one item, and the final response, agree on these fields."""
    answer = seen.answer(step)
    known: dict[tuple[Any, str], Any] = {}
    for item, facts in _facts(answer):
        for field in fields:
            if field not in facts:
                continue
            before = known.setdefault((item, field), facts[field])
            if before != facts[field]:
                return CONTRADICTION.format(
                    field=field, item=item, found=facts[field], before=before
                )
    return None if known else f"no event has {list(fields)}"


def _facts(answer: Answer) -> list[tuple[Any, Mapping[str, Any]]]:
    """What each event says of an item, by its place in the output."""
    facts: list[tuple[Any, Mapping[str, Any]]] = []
    for event in answer.events:
        if "output_index" in event.data:
            item = event.data.get("item") or {}
            shown = {"item_id": item["id"]} if "id" in item else {}
            calls = {"call_id": item["call_id"]} if "call_id" in item else {}
            facts.append((event.data["output_index"], {**event.data, **shown, **calls}))
    for index, item in enumerate(answer.final.get("output") or ()):
        last = {"item_id": item.get("id"), "output_index": index}
        calls = {"call_id": item["call_id"]} if "call_id" in item else {}
        facts.append((index, {**last, **calls}))
    return facts


def ids_unique(seen: Evidence, steps: Sequence[str]) -> Verdict:
    """Ids that the server handed out: of responses, items and calls."""
    ids: list[str] = []
    for step in steps:
        answer = seen.answer(step)
        if not answer.response_id:
            return f"{step} has no id ({told(answer)})"
        ids += [answer.response_id, *answer.call_ids]
        ids += [item["id"] for item in answer.items if "id" in item]
    twice = {each for each in ids if ids.count(each) > 1}
    return f"{sorted(twice)} were given out more than once" if twice else None


def terminal(seen: Evidence, step: str, type: str, reason: str | None = None) -> Verdict:
    """Exactly one terminal event, of this type, and nothing but [DONE] behind it."""
    answer = seen.answer(step)
    ends = [event for event in answer.events if event.type in TERMINAL]
    if [event.type for event in ends] != [type]:
        return f"ended with {[event.type for event in ends]} ({told(answer)})"
    behind = answer.events[answer.events.index(ends[0]) + 1 :]
    if any(event.text != DONE for event in behind):
        return f"{behind[0].type} comes behind the end"
    if type == "response.failed" and not answer.error:
        return "no error object in response.failed"
    details = answer.final.get("incomplete_details") or {}
    return None if reason in (None, details.get("reason")) else f"the reason is {details}"


def usage_present(seen: Evidence, step: str) -> Verdict:
    answer = seen.answer(step)
    counts = (answer.input_tokens, answer.output_tokens, answer.cached_tokens)
    if None in counts:
        return f"usage {answer.usage}"
    total = answer.usage.get("total_tokens")
    if total != (answer.input_tokens or 0) + (answer.output_tokens or 0):
        return f"total_tokens is {total}: {answer.usage}"
    return None


def usage_field(seen: Evidence, step: str, field: str, min_of: str, frac: float = 1.0) -> Verdict:
    value: Any = seen.answer(step).usage
    for key in field.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    wanted = frac * seen.tokens(min_of)
    return (
        None
        if value is not None and value >= wanted
        else f"{field} is {value}, wanted {wanted:.0f}"
    )


def stream_equals_final(seen: Evidence, step: str) -> Verdict:
    """Deltas, done events and the final response say the same."""
    answer = seen.answer(step)
    if answer.terminal is None:
        return f"no final response ({told(answer)})"
    done = [e.data["item"] for e in answer.events if e.type == "response.output_item.done"]
    if done != answer.final["output"]:
        return f"items done {done}, final {answer.final['output']}"
    arguments = "".join(raw for _, _, raw in answer.calls)
    said = {TEXT_DELTA: answer.text, ARGUMENTS_DELTA: arguments}
    # Servers may send reasoning as such, as a summary, or both.
    kinds = {event.type for event in answer.events} & {*REASONING_DELTAS}
    said |= dict.fromkeys(kinds or REASONING_DELTAS[:1], answer.reasoning)
    for kind, final in said.items():
        streamed = "".join(event.data["delta"] for event in answer.events if event.type == kind)
        if streamed != final:
            return f"{kind} gave {streamed!r}, the final response has {final!r}"
    return None


def sse_well_formed(seen: Evidence, steps: Sequence[str]) -> Verdict:
    for step in steps:
        answer = seen.answer(step)
        if answer.stream is None:
            return f"{step} is no stream ({told(answer)})"
        if answer.stream.faults:
            return f"{step}: {answer.stream.faults}"
        if not answer.events or answer.events[-1].text != DONE:
            return f"{step} doesn't end with {DONE}"
    return None


CHECKS = (
    status,
    statuses_subset,
    error,
    header_present_if,
    events_subsequence,
    seq_contiguous,
    items_nested,
    ids_consistent,
    ids_unique,
    terminal,
    usage_present,
    usage_field,
    stream_equals_final,
    sse_well_formed,
)
