"""Each check holds on evidence that is right and fails on evidence that isn't."""

from dataclasses import replace
from typing import Any

import pytest

from tests.cases.answer import Cut
from tests.cases.case import Case, Check, Control
from tests.cases.evidence import Database, Evidence, Memory
from tests.cases.judge import CHECKS, absent, judge
from tests.cases.made_up import (
    CONTROL,
    answered,
    call,
    closed,
    delta,
    ended,
    message,
    opened,
    refused,
    seen,
    streamed,
    thought,
    tokens,
)

ROWS: list[tuple[str, dict[str, Any], Evidence, Evidence]] = []
"""Check, parameters, evidence on which it holds, evidence on which it doesn't."""


def row(name: str, good: Evidence, bad: Evidence, **parameters: Any) -> None:
    ROWS.append((name, parameters, good, bad))


def with_parts(evidence: Evidence, **parts: Any) -> Evidence:
    return replace(evidence, **parts)


def prompted(text: str, **parts: Any) -> Any:
    answer = answered(**parts)
    answer.prompt = tokens(text)
    return answer


def cut(done: int, stopped_s: float | None) -> Any:
    answer = answered()
    answer.cut = Cut(done, stopped_s)
    return answer


def told_by_explanation(read: int) -> Any:
    """A cut request."""
    answer = streamed(delta("a"), done=False)
    answer.cut = Cut(read, 0.1)
    answer.explained = {"prompt_tokens": read, "output_tokens": 1}
    return answer


def recorded(record: dict[str, Any] | None, **parts: Any) -> Any:
    answer = answered(**parts)
    answer.record = record
    return answer


def never_ran() -> Any:
    answer = answered()
    answer.prompt = None
    return answer


# --- reuse --------------------------------------------------------------------------------------
row(
    "cached_min",
    seen(m=answered(cached=95), o=answered(read=90, said=10)),
    seen(m=answered(cached=94), o=answered(read=90, said=10)),
    step="m",
    of="o.total",
    frac=0.95,
)
row(
    "cached_min",
    seen(m=answered(cached=90), o=answered()),
    seen(m=answered(cached=89), o=answered()),
    step="m",
    of="o.input",
    frac=1.0,
    slack_tokens=10,
)
row(
    "cached_min",
    seen(m=answered(cached=50), o=answered(read=50)),
    seen(m=refused(500), o=answered(read=50)),
    step="m",
    of="o.input",
    frac=1.0,
)
row(
    "cached_min",
    seen(m=answered(cached=40), o=told_by_explanation(40)),
    seen(m=answered(cached=39), o=told_by_explanation(40)),
    step="m",
    of="o.input",
    frac=1.0,
)
row("cached_max", seen(m=answered(cached=0)), seen(m=answered(cached=1)), step="m", max=0)
row(
    "fresh_max",
    seen(m=answered(cached=75)),
    seen(m=answered(cached=74)),
    step="m",
    of="m.input",
    frac=0.25,
)
row(
    "total_prefill_max",
    seen(a=answered(), b=answered(cached=90)),
    seen(a=answered(), b=answered(cached=89)),
    steps=["a", "b"],
    of="a.input",
    frac=1.1,
)
row(
    "cached_min_vs_progress",
    seen(m=answered(cached=40), c=cut(50, 0.1)),
    seen(m=answered(cached=39), c=cut(50, 0.1)),
    step="m",
    of="c",
    frac=0.8,
)
row(
    "cached_min_vs_progress",
    seen(m=answered(cached=40), c=cut(50, 0.1)),
    seen(m=answered(cached=40), c=answered()),
    step="m",
    of="c",
    frac=0.8,
)
row("engine_prefill_zero", seen(m=never_ran()), seen(m=answered()), steps=["m"])
row(
    "cached_matches_engine",
    seen(m=answered(cached=7)),
    seen(m=replace(answered(cached=7), explained={"reused_tokens": 6})),
    steps=["m"],
)
row(
    "input_tokens_independent_of_cache",
    seen(m=answered(cached=90)),
    seen(m=prompted("short")),
    steps=["m"],
)
row(
    "same_slot",
    seen(a=answered(slot=1), b=answered(slot=1)),
    seen(a=answered(slot=1), b=answered(slot=2)),
    steps=["a", "b"],
)
row(
    "same_slot",
    seen(a=answered(slot=1), b=answered(slot=1)),
    seen(a=answered(slot=None), b=answered(slot=None)),
    steps=["a", "b"],
)
row(
    "max_slots",
    seen(a=answered(slot=1), b=answered(slot=1)),
    seen(a=answered(slot=1), b=answered(slot=2)),
    steps=["a", "b"],
    max=1,
)
row("stops_within", seen(m=cut(1, 0.9)), seen(m=cut(1, 1.1)), of="m", seconds=1)
row("stops_within", seen(m=cut(1, 0.9)), seen(m=cut(1, None)), of="m", seconds=1)
row("stops_within", seen(m=cut(1, 0.9)), seen(m=answered()), of="m", seconds=1)

# --- prompt -------------------------------------------------------------------------------------
row("prompt_contains", seen(m=prompted("a cat")), seen(m=prompted("a dog")), step="m", all=["cat"])
row(
    "prompt_contains_text",
    seen(m=prompted("cat")),
    seen(m=prompted("c" + chr(CONTROL) + "t")),
    step="m",
    all=["cat"],
)
row(
    "prompt_not_contains",
    seen(m=prompted("a cat")),
    seen(m=prompted("a dog")),
    step="m",
    any=["dog"],
)
row("prompt_not_contains", seen(m=prompted("a cat")), seen(m=never_ran()), step="m", any=["dog"])
row("prompt_order", seen(m=prompted("ab")), seen(m=prompted("ba")), step="m", order=["a", "b"])
row(
    "prompt_token_equal",
    seen(a=prompted("x"), b=prompted("x")),
    seen(a=prompted("x"), b=prompted("y")),
    steps=["a", "b"],
)
row(
    "prompt_has_output_of",
    seen(a=answered(message("Rix")), b=prompted("it said Rix")),
    seen(a=answered(message("Rix")), b=prompted("it said so")),
    step="b",
    steps=["a"],
)
row(
    "prompt_has_output_of",
    seen(a=answered(message("Rix")), b=prompted("it said Rix")),
    seen(a=answered(), b=prompted("it said so")),
    step="b",
    steps=["a"],
)
row(
    "control_token_count_equals_plain",
    with_parts(seen(m=prompted("p")), plain={"m": prompted("q")}),
    with_parts(seen(m=prompted("p" + chr(CONTROL))), plain={"m": prompted("q")}),
    step="m",
)
row(
    "control_token_count_equals_plain",
    with_parts(seen(m=prompted("p")), plain={"m": prompted("q")}),
    seen(m=prompted("p")),
    step="m",
)

# --- output -------------------------------------------------------------------------------------
row(
    "text_equals",
    seen(m=answered(message("hi "))),
    seen(m=answered(message("hi"))),
    step="m",
    text="hi ",
)
row(
    "text_equals_trimmed",
    seen(m=answered(message("hi\n"))),
    seen(m=answered(message("ho"))),
    step="m",
    text="hi",
)
row(
    "text_not_contains",
    seen(m=answered(message("a"))),
    seen(m=answered(message("<b>"))),
    step="m",
    any=["<b>"],
)
row("text_empty", seen(m=answered(thought("so"))), seen(m=answered(message("so"))), step="m")
row(
    "reasoning_not_contains",
    seen(m=answered(message("<b>"))),
    seen(m=answered(thought("<b>"))),
    step="m",
    any=["<b>"],
)
row(
    "raw_arguments_not_contains",
    seen(m=answered(call("f", "{}"))),
    seen(m=answered(call("f", '{"a": "\\u0000"}'))),
    step="m",
    any=["\\u0000"],
)
row(
    "delta_not_contains",
    seen(m=streamed(delta("a"))),
    seen(m=streamed(delta("\ufffd"))),
    step="m",
    any=["\ufffd"],
)
row(
    "delta_not_contains", seen(m=streamed(delta("a"))), seen(m=streamed()), step="m", any=["\ufffd"]
)
row(
    "no_foreign_marker",
    seen(m=prompted("mine")),
    seen(m=prompted("theirs")),
    step="m",
    any=["theirs"],
)
for same in ("same_text", "same_for_all_splits"):
    row(
        same,
        seen(a=answered(message("x")), b=answered(message("x"))),
        seen(a=answered(message("x")), b=answered(message("y"))),
        steps=["a", "b"],
    )
row(
    "same_text",
    seen(a=answered(), b=answered()),
    seen(a=refused(500), b=refused(500)),
    steps=["a", "b"],
)
row(
    "equals_cold",
    with_parts(seen(m=answered(message("x"))), cold={"m": answered(message("x"))}),
    with_parts(seen(m=answered(message("x"))), cold={"m": answered(message("y"))}),
    step="m",
)
row(
    "equals_cold",
    with_parts(seen(m=answered()), cold={"m": answered()}),
    with_parts(seen(m=answered()), cold={"m": answered(cached=5)}),
    step="m",
)
row(
    "equals_cold",
    with_parts(seen(m=answered()), cold={"m": answered()}),
    seen(m=answered()),
    step="m",
)
row(
    "tool_calls",
    seen(m=answered(call("f", '{"a": 1}'))),
    seen(m=answered(call("f", '{"a": 2}'))),
    step="m",
    equals=[{"name": "f", "arguments": {"a": 1}}],
)
row(
    "tool_calls",
    seen(m=answered(call("f", '{"a": 1}'))),
    seen(m=answered(call("f", '{"a": 1.0}'))),
    step="m",
    equals=[{"name": "f", "arguments": {"a": 1}}],
)
row(
    "tool_calls",
    seen(m=answered(call("f", '{"a": true}'))),
    seen(m=answered(call("f", '{"a": 1}'))),
    step="m",
    equals=[{"name": "f", "arguments": {"a": True}}],
)
row("tool_call_count", seen(m=answered()), seen(m=answered(call("f", "{}"))), step="m", equals=0)
row("tool_call_count", seen(m=answered()), seen(m=refused(500)), step="m", equals=0)
row(
    "tool_call_names_not_contain",
    seen(m=answered(call("f", "{}"))),
    seen(m=answered(call("f<", "{}"))),
    step="m",
    any=["<"],
)
row(
    "no_silent_truncation",
    seen(m=answered(said=9, sent={"max_output_tokens": 10})),
    seen(m=answered(said=10, sent={"max_output_tokens": 10})),
    step="m",
)
row(
    "finish_reason",
    seen(m=answered(call("f", "{}"))),
    seen(m=answered()),
    step="m",
    equals="tool_calls",
)
row(
    "finish_reason",
    seen(m=answered()),
    seen(m=answered(call("f", "{}"))),
    step="m",
    one_of=["stop"],
)

# --- protocol -----------------------------------------------------------------------------------
row("status", seen(m=answered()), seen(m=refused(500)), step="m", one_of=[200])
row(
    "status",
    seen(m=answered()),
    seen(m=replace(answered(), trouble="reset")),
    step="m",
    one_of=[200],
)
row(
    "statuses_subset",
    seen(a=answered(), b=refused(429)),
    seen(a=answered(), b=refused(500)),
    steps=["a", "b"],
    one_of=[200, 429],
)
row(
    "error",
    seen(m=refused(400, code="c", param="p", type="t", message="the call_9")),
    seen(m=refused(400, code="d", param="p", type="t", message="the call_9")),
    step="m",
    code_one_of=["c"],
    param="p",
    type="t",
    message_contains="call_9",
)
row(
    "error",
    seen(m=refused(400, code="c", param="p", message="m")),
    seen(m=refused(400, code="c", param="q", message="m")),
    step="m",
    code="c",
    param="p",
)
row(
    "error",
    seen(m=refused(400, message="call_9")),
    seen(m=refused(400, message="call_8")),
    step="m",
    message_contains="call_9",
)
row("error", seen(m=refused(400, message="x")), seen(m=answered()), step="m")
row(
    "header_present_if",
    seen(m=replace(refused(429), headers={"retry-after": "1"})),
    seen(m=refused(429)),
    step="m",
    header="Retry-After",
    status=429,
)
ITEM = message("ab")
LADDER = (opened(ITEM), delta("a"), delta("b"), closed(ITEM), ended(ITEM))
row(
    "events_subsequence",
    seen(m=streamed(*LADDER)),
    seen(m=streamed(*reversed(LADDER))),
    step="m",
    sequence=[LADDER[0]["type"], LADDER[3]["type"]],
)
row(
    "seq_contiguous",
    seen(m=streamed({"sequence_number": 0}, {"sequence_number": 1})),
    seen(m=streamed({"sequence_number": 0}, {"sequence_number": 2})),
    step="m",
)
row("seq_contiguous", seen(m=streamed({"sequence_number": 0})), seen(m=streamed()), step="m")
row(
    "items_nested",
    seen(m=streamed(*LADDER)),
    seen(m=streamed(opened(ITEM), opened(ITEM, 1), closed(ITEM), closed(ITEM, 1))),
    step="m",
)
row("items_nested", seen(m=streamed(*LADDER)), seen(m=streamed(opened(ITEM))), step="m")
row("items_nested", seen(m=streamed(*LADDER)), seen(m=streamed(ended(ITEM))), step="m")
row(
    "ids_consistent",
    seen(m=streamed(*LADDER)),
    seen(m=streamed(opened(ITEM), delta("a", item_id="msg_2"))),
    step="m",
    fields=["item_id"],
)
row(
    "ids_consistent",
    seen(m=streamed(*LADDER)),
    seen(m=streamed(opened(ITEM), ended(message("ab", "msg_2")))),
    step="m",
    fields=["item_id"],
)
row(
    "ids_consistent",
    seen(m=streamed(closed(call("f", "{}")))),
    seen(m=streamed(opened(call("f", "{}")), closed(call("f", "{}", call_id="call_2")))),
    step="m",
    fields=["call_id"],
)
row(
    "ids_unique",
    seen(a=answered(id="resp_a"), b=answered(id="resp_b")),
    seen(a=answered(id="resp_a"), b=answered(id="resp_a")),
    steps=["a", "b"],
)
row(
    "ids_unique",
    seen(a=answered(message("x", "m1"), id="resp_a"), b=answered(id="resp_b")),
    seen(a=answered(message("x", "m1"), id="resp_a"), b=answered(message("x", "m1"), id="resp_b")),
    steps=["a", "b"],
)
CUT_SHORT = ended(status="incomplete", incomplete_details={"reason": "max_output_tokens"})
row(
    "terminal",
    seen(m=streamed(*LADDER)),
    seen(m=streamed(CUT_SHORT)),
    step="m",
    type="response.completed",
)
row(
    "terminal",
    seen(m=streamed(*LADDER)),
    seen(m=streamed(*LADDER, delta("more"))),
    step="m",
    type="response.completed",
)
row(
    "terminal",
    seen(m=streamed(*LADDER)),
    seen(m=streamed(*LADDER[:-1])),
    step="m",
    type="response.completed",
)
row(
    "terminal",
    seen(m=streamed(CUT_SHORT)),
    seen(m=streamed(ended(status="incomplete", incomplete_details={"reason": "other"}))),
    step="m",
    type="response.incomplete",
    reason="max_output_tokens",
)
row(
    "terminal",
    seen(m=streamed(ended(status="failed", error={"message": "x"}))),
    seen(m=streamed(ended(status="failed"))),
    step="m",
    type="response.failed",
)
row("usage_present", seen(m=answered()), seen(m=answered(usage=None)), step="m")
row(
    "usage_present",
    seen(m=answered()),
    seen(
        m=answered(
            usage={
                "input_tokens": 1,
                "output_tokens": 1,
                "total_tokens": 3,
                "input_tokens_details": {"cached_tokens": 0},
            }
        )
    ),
    step="m",
)
row(
    "usage_field",
    seen(m=answered(cached=80), o=answered()),
    seen(m=answered(cached=79), o=answered()),
    step="m",
    field="input_tokens_details.cached_tokens",
    min_of="o.input",
    frac=0.8,
)
row(
    "stream_equals_final",
    seen(m=streamed(*LADDER)),
    seen(m=streamed(opened(ITEM), delta("a"), closed(ITEM), ended(ITEM))),
    step="m",
)
row(
    "stream_equals_final",
    seen(m=streamed(*LADDER)),
    seen(m=streamed(*LADDER[:-1], ended(message("abc")))),
    step="m",
)
THOUGHT = thought("so")
SUMMED_UP = {"type": "response.reasoning_summary_text.delta", "delta": "so"}
row(
    "stream_equals_final",
    seen(m=streamed(opened(THOUGHT), SUMMED_UP, closed(THOUGHT), ended(THOUGHT))),
    seen(m=streamed(opened(THOUGHT), closed(THOUGHT), ended(THOUGHT))),
    step="m",
)
row(
    "sse_well_formed", seen(m=streamed(*LADDER)), seen(m=streamed(*LADDER, done=False)), steps=["m"]
)


def malformed() -> Any:
    answer = streamed(*LADDER)
    assert answer.stream is not None
    answer.stream.feed(b"rubbish\n\ndata: [DONE]\n\n", 9.0)
    return answer


row("sse_well_formed", seen(m=streamed(*LADDER)), seen(m=malformed()), steps=["m"])

# --- time ---------------------------------------------------------------------------------------
row(
    "max_silence",
    seen(m=streamed(*LADDER, every_s=1.0)),
    seen(m=streamed(*LADDER, every_s=2.1)),
    step="m",
    seconds=2,
)
row(
    "max_silence",
    seen(m=streamed(delta("a"), delta("b"))),
    seen(m=streamed(delta("a"), {"type": "other"}, {"type": "other"}, delta("b"))),
    step="m",
    seconds=2,
    events="response.output_text.delta",
)
row(
    "max_silence", seen(m=streamed(delta("a"), delta("b"))), seen(m=answered()), step="m", seconds=2
)
row(
    "time_max",
    with_parts(seen(), seconds={"s": {"ready": 4.9}}),
    with_parts(seen(), seconds={"s": {"ready": 5.1}}),
    step="s",
    metric="ready",
    seconds=5,
)
row(
    "time_max",
    seen(m=streamed(delta("a"), every_s=1.0)),
    seen(m=streamed(delta("a"), every_s=3.0)),
    step="m",
    metric="ttft",
    seconds=2,
)
row(
    "time_max",
    seen(m=streamed(delta("a"), every_s=1.0)),
    seen(m=refused(500)),
    step="m",
    metric="ttft",
    seconds=2,
)
row(
    "time_ratio_max",
    with_parts(
        seen(m=streamed(delta("a"), every_s=1.2)), solo={"m": streamed(delta("a"), every_s=1.0)}
    ),
    with_parts(
        seen(m=streamed(delta("a"), every_s=1.4)), solo={"m": streamed(delta("a"), every_s=1.0)}
    ),
    step="m",
    of="m.solo",
    metric="ttft",
    ratio=1.3,
)
row(
    "rate_min",
    with_parts(
        seen(m=streamed(*[delta("x")] * 20, every_s=1.0), big=streamed(delta("y"), every_s=10.0)),
        solo={"m": streamed(*[delta("x")] * 20, every_s=0.5)},
    ),
    with_parts(
        seen(m=streamed(*[delta("x")] * 20, every_s=1.0), big=streamed(delta("y"), every_s=10.0)),
        solo={"m": streamed(*[delta("x")] * 20, every_s=0.1)},
    ),
    step="m",
    during="big.prefill",
    frac_of_solo=0.2,
)
row(
    "rate_min",
    with_parts(
        seen(m=streamed(*[delta("x")] * 5), big=streamed(delta("y"), every_s=10.0)),
        solo={"m": streamed(*[delta("x")] * 20)},
    ),
    with_parts(
        seen(m=streamed(), big=streamed(delta("y"), every_s=10.0)),
        solo={"m": streamed(*[delta("x")] * 20)},
    ),
    step="m",
    during="big.prefill",
    frac_of_solo=0.2,
)
row(
    "finishes_before",
    seen(a=streamed(every_s=1.0), b=streamed(every_s=2.0)),
    seen(a=streamed(every_s=2.0), b=streamed(every_s=1.0)),
    step="a",
    other="b",
)

# --- store and service --------------------------------------------------------------------------
row(
    "store", seen(m=recorded(None)), seen(m=recorded({"status": "completed"})), of="m", row="absent"
)
row(
    "store",
    seen(m=recorded({"status": "cancelled"})),
    seen(m=recorded({"status": "completed"})),
    of="m",
    status_not="completed",
)
row(
    "db_integrity",
    with_parts(seen(), database=Database(["ok", "ok"])),
    with_parts(seen(), database=Database(["ok", "row 5 missing"])),
    equals="ok",
)
row("db_integrity", with_parts(seen(), database=Database(["ok"])), seen(), equals="ok")
row(
    "row_count",
    with_parts(seen(), database=Database(fixture_rows=5)),
    with_parts(seen(), database=Database(fixture_rows=4)),
    equals=5,
)
row(
    "row_count_not",
    with_parts(seen(), database=Database(fixture_rows=5)),
    with_parts(seen(), database=Database(fixture_rows=4)),
    equals=4,
)
row(
    "rows_written_max",
    with_parts(seen(), database=Database(added={"m": 8})),
    with_parts(seen(), database=Database(added={"m": 9})),
    step="m",
    max=8,
)
row(
    "rows_written_max",
    with_parts(seen(), database=Database(added={"m": 8})),
    seen(),
    step="m",
    max=8,
)
row(
    "acked_responses_present",
    with_parts(seen(), generated={"g": [recorded({}), refused(500)]}),
    with_parts(seen(), generated={"g": [recorded({}), recorded(None)]}),
    of="g",
)
row(
    "acked_responses_present",
    with_parts(seen(), generated={"g": [recorded({})]}),
    with_parts(seen(), generated={"g": []}),
    of="g",
)
row("not_silently_unstored", seen(m=recorded({})), seen(m=recorded(None)), of="m")
row(
    "server_alive",
    with_parts(seen(), alive=True, health={"status": "ok"}),
    with_parts(seen(), alive=False),
)
row(
    "server_alive",
    with_parts(seen(), alive=True, health={"status": "ok"}),
    with_parts(seen(), alive=True, health={"status": "degraded"}),
)
row(
    "health_degraded",
    with_parts(seen(), health={"status": "degraded"}),
    with_parts(seen(), health={"status": "ok"}),
)
row(
    "reported",
    with_parts(seen(), log="the file is Damaged"),
    with_parts(seen(), log="all well"),
    contains_any=["damaged"],
)
row(
    "diagnostic",
    seen(m=answered(prompt_cache_diagnostics={"ninfer_reason": "branch"})),
    seen(m=answered(prompt_cache_diagnostics={"ninfer_reason": "evicted"})),
    step="m",
    one_of=["branch"],
)
row(
    "host_memory_max",
    with_parts(seen(), memory=Memory(50, 160, 100)),
    with_parts(seen(), memory=Memory(50, 161, 100)),
    budget_factor=1.1,
)
row("host_memory_max", with_parts(seen(), memory=Memory(50, 160, 100)), seen(), budget_factor=1.1)


@pytest.mark.parametrize(("name", "parameters", "good", "bad"), ROWS, ids=[r[0] for r in ROWS])
def test_holds_and_fails(
    name: str, parameters: dict[str, Any], good: Evidence, bad: Evidence
) -> None:
    check = Check(name, parameters)
    assert judge(check, good) is None
    assert judge(check, bad)


def test_every_check_is_proved() -> None:
    assert {name for name, *_ in ROWS} == set(CHECKS)


def case(**parts: Any) -> Case:
    return Case("1", frozenset(parts.pop("needs", ())), {}, parts.pop("steps", ()), **parts)


@pytest.mark.parametrize(
    ("unplayable", "told"),
    [
        (case(needs=["vision"]), "need vision"),
        (case(steps=(Control("s", "fill_disk", {}),)), "control fill_disk"),
        (case(checks=(Check("no_such_check", {}),)), "check no_such_check"),
        (case(checks=(Check("cached_max", {"step": "m", "frac_of": "a"}),)), "check cached_max with frac_of"),
    ],
)  # fmt: skip
def test_a_case_that_cannot_be_played_names_what_is_absent(unplayable: Case, told: str) -> None:
    assert absent(unplayable) == told


def test_a_case_that_can_be_played_lacks_nothing() -> None:
    steps = (Control("s", "restart_server", {}),)
    checks = (Check("cached_max", {"step": "m", "max": 0}),)
    assert absent(case(needs=["restart"], steps=steps, checks=checks)) is None
