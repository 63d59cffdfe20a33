"""Every response gets exactly one reason, and it is true: the figures of the engine's answer decide between the candidates."""

from dataclasses import replace
from typing import Any

import pytest
from planning_values import checkpoint, match, side

from engine.api import RequestId, ResumeReason
from ninfer_proxy.compared import Difference
from ninfer_proxy.planning.explain import Drop, Facts, explain, settled
from ninfer_proxy.types import (
    AnchorKind,
    CheckpointInfo,
    ContinuationId,
    ConversationId,
    Decision,
    Divergence,
    LineRole,
    Match,
    MatchKind,
    Reason,
    Retention,
    Started,
    Tier,
    TurnPlan,
)

# system 15000 | user 15200 | answer 40000 | user 41000 | answer 60000 | user 60500
BORDERS = (0, 15_000, 15_200, 40_000, 41_000, 60_000, 60_500)
PROMPT = BORDERS[-1] + 3
PLAN = TurnPlan(
    conversation=ConversationId("c0"),
    continuation=ContinuationId("c0"),
    slot=4,
    role=LineRole.MAIN,
    anchors=(),
    ladder_tokens=None,
    retention=Retention(ContinuationId("c0"), 5, 0.0),
)
APPEND = Facts(known_messages=5, head_messages=1)
EDIT = Divergence(stored_index=2, item_index=3)
VANISHED = Divergence(stored_index=2, item_index=3, transient=True)


def started(
    reused: int,
    matched: int | None = None,
    reason: ResumeReason | None = None,
    source: CheckpointInfo | None = None,
) -> Started:
    found = source or (checkpoint(AnchorKind.TIP, reused) if reused else None)
    fallback = ResumeReason.RESUMED if reused else ResumeReason.NOTHING_STORED
    return Started(
        request_id=RequestId("r"),
        prompt_tokens=PROMPT,
        reused_tokens=reused,
        matched_tokens=reused if matched is None else matched,
        reason=reason or fallback,
        source=found,
        borders=BORDERS,
    )


def reason(found: Match, begun: Started, facts: Facts = APPEND) -> Reason:
    return explain(found, PLAN, begun, facts).reason


def facts(**more: Any) -> Facts:
    return Facts(**({"known_messages": 5, "head_messages": 1} | more))


# --- hits --------------------------------------------------------------------------------------


def test_a_decision_tells_its_figures() -> None:
    source = checkpoint(AnchorKind.TIP, 59_990, Tier.HOST)
    told = explain(match(), PLAN, started(59_990, source=source), APPEND)
    assert told == Decision(
        reason=Reason.CACHE_HIT,
        detail="59,990 of 60,503 prompt tokens were reused (tip checkpoint, host), 513 computed. "
        "Nothing but what is new was computed, and 10 tokens that lead up to it.",
        slot=4,
        conversation=ConversationId("c0"),
        match=MatchKind.CONTINUES,
        evidence=("header session-id = s1",),
        prompt_tokens=PROMPT,
        reused_tokens=59_990,
        source_tier=Tier.HOST,
        source_kind=AnchorKind.TIP,
    )


def test_one_token_is_no_tokens() -> None:
    def told(reused: int, prompt: int, known: int) -> str:
        begun = replace(started(reused), prompt_tokens=prompt, borders=(0, known))
        return explain(match(), PLAN, begun, facts(known_messages=1)).detail

    assert told(9, 10, 10).endswith("new was computed, and 1 token that leads up to it.")
    assert told(1, 2, 2).startswith("1 of 2 prompt tokens was reused")
    assert told(0, 1, 1).startswith("All 1 prompt token was computed.")
    assert told(0, 2_000, 1).startswith("All 2,000 prompt tokens were computed.")


def test_a_turn_that_made_way_tells_what_it_reused_in_the_end() -> None:
    begun = explain(match(), PLAN, started(60_000), APPEND)
    assert settled(begun, 60_000) == begun
    told = settled(begun, 59_000)
    assert (told.reused_tokens, told.prefilled_tokens) == (59_000, PROMPT - 59_000)
    assert told.detail == (
        f"{begun.detail} It made way for others while it ran and had tokens computed again; "
        "in the end 59000 of 60503 count as reused."
    )
    assert told.reason is begun.reason


def test_a_hit_allows_a_bounded_rest() -> None:
    assert reason(match(), started(60_000)) is Reason.CACHE_HIT
    assert reason(match(), started(59_700)) is Reason.CACHE_HIT
    assert reason(match(), started(59_699, matched=60_000)) is not Reason.CACHE_HIT


def short(reused: int) -> Started:
    """A prompt of 120 tokens, 80 of them known."""
    return replace(started(reused), prompt_tokens=120, borders=(0, 50, 80, 117))


def test_a_short_prompt_that_was_computed_whole_is_no_hit() -> None:
    known = Facts(known_messages=2, head_messages=1)
    assert reason(match(), short(0), known) is Reason.CHECKPOINT_MISSING
    assert reason(match(), short(50), known) is Reason.CACHE_HIT
    restarted = replace(known, engine_restarted=True)
    assert reason(match(), short(0), restarted) is Reason.ENGINE_RESTARTED
    assert reason(side(), short(0), known) is Reason.SIDE_REQUEST
    rewritten = Facts(known_messages=0, shared_messages=0)
    assert reason(match(divergence=EDIT), short(0), rewritten) is Reason.INPUT_CHANGED


def test_a_fork_that_came_too_early_for_the_state_of_the_other_turn() -> None:
    running = match(kind=MatchKind.FORKS)
    assert reason(running, started(0)) is Reason.BRANCH
    assert reason(running, started(59_900)) is Reason.CACHE_HIT


def test_much_new_text_is_no_reason_to_call_it_a_miss() -> None:
    assert reason(match(), started(15_200), facts(known_messages=2)) is Reason.CACHE_HIT


def test_an_edit_that_finds_its_checkpoint_is_a_hit() -> None:
    edited = match(divergence=EDIT)
    at_the_edit = facts(known_messages=3, shared_messages=3)
    assert reason(edited, started(40_000), at_the_edit) is Reason.CACHE_HIT


def test_a_transient_item_with_an_anchor_before_it_is_a_hit() -> None:
    gone = match(divergence=VANISHED)
    assert reason(gone, started(59_900), facts(shared_messages=4)) is Reason.CACHE_HIT


# --- what the client changed -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "known", "expected"),
    [
        (match(head_changed=("tools", "instructions")), facts(), Reason.TOOLS_CHANGED),
        (match(head_changed=("instructions",)), facts(), Reason.INSTRUCTIONS_CHANGED),
        (match(divergence=EDIT), facts(shared_messages=3), Reason.INPUT_CHANGED),
        (match(divergence=VANISHED), facts(shared_messages=3), Reason.TRANSIENT_ITEM),
        (
            match(divergence=EDIT),
            facts(shared_messages=3, older_parent=True),
            Reason.BRANCH,
        ),
        (
            match(divergence=EDIT, kind=MatchKind.FORKS),
            facts(shared_messages=3),
            Reason.BRANCH,
        ),
        (
            match(divergence=EDIT, compacted=True),
            facts(known_messages=1, shared_messages=1),
            Reason.CONTEXT_COMPACTED,
        ),
    ],
)
def test_what_the_client_changed_is_the_reason_when_the_engine_went_as_far_as_it_could(
    found: Match, known: Facts, expected: Reason
) -> None:
    reached = {Reason.TOOLS_CHANGED: 0, Reason.INSTRUCTIONS_CHANGED: 0}.get(
        expected, 15_000 if found.compacted else 40_000
    )
    assert reason(found, started(reached), known) is expected


DIFFERENCE = Difference("input[3]:9", "item 3 differs at character 9: was “secret”")


def test_the_first_difference_is_told_beside_a_sentence_that_quotes_nobody() -> None:
    known = facts(shared_messages=3, difference=DIFFERENCE)
    told = explain(match(divergence=EDIT), PLAN, started(40_000), known)
    assert (told.differs_at, told.difference) == (DIFFERENCE.at, DIFFERENCE.told)
    assert "secret" not in told.detail
    assert told.header.endswith("; from=device; differs=input[3]:9")


# --- heads that mean the same ------------------------------------------------------------------

RESPELLED = Difference("tools[0]", "the tools stand in another order")


def test_a_head_that_is_written_otherwise_comes_before_all_other_differences() -> None:
    known = facts(shared_messages=3, difference=DIFFERENCE, respelled=RESPELLED, head_known=True)
    begun = started(0, 12, ResumeReason.NO_SHARED_CHECKPOINT)
    begun = replace(begun, borders=(600, *BORDERS[1:]))
    told = explain(match(divergence=EDIT), PLAN, begun, known)
    assert told.reason is Reason.TOOLS_CHANGED
    assert told.differs_at == "tools[0]"
    assert "written otherwise from token 12 on" in told.detail


def test_a_head_that_is_written_otherwise_is_no_matter_where_the_engine_got_past_it() -> None:
    known = facts(respelled=RESPELLED, head_known=True)
    told = explain(match(), PLAN, started(60_000), known)
    assert (told.reason, told.differs_at) == (Reason.CACHE_HIT, None)


def test_a_head_that_is_known_to_be_the_same_is_not_blamed() -> None:
    """Its state was lost: what the engine still shares with the prompt is another conversation's beginning."""
    known = facts(head_known=True, drops=(Drop(60_000, Tier.DEVICE, "memory"),))
    begun = started(0, 3_000, ResumeReason.NO_SHARED_CHECKPOINT)
    assert reason(match(), begun, known) is Reason.EVICTED
    assert reason(match(), begun, facts(head_known=True)) is Reason.CHECKPOINT_MISSING
    assert reason(match(), begun, facts()) is Reason.TOOLS_CHANGED


def test_tools_that_are_written_otherwise_come_before_instructions_that_changed() -> None:
    other = match(head_changed=("instructions",))
    changed = Difference("instructions:7", "the instructions differ")
    known = facts(difference=changed, respelled=RESPELLED)
    begun = started(0, 9, ResumeReason.NO_SHARED_CHECKPOINT)
    past_tools = replace(begun, matched_tokens=900, borders=(600, *BORDERS[1:]))
    before_tools_end = replace(past_tools, matched_tokens=9)
    told = explain(other, PLAN, before_tools_end, known)
    assert (told.reason, told.differs_at) == (Reason.TOOLS_CHANGED, "tools[0]")
    told = explain(other, PLAN, past_tools, known)
    assert (told.reason, told.differs_at) == (Reason.INSTRUCTIONS_CHANGED, "instructions:7")


@pytest.mark.parametrize(
    ("place", "states", "saved"),
    [
        (-1.0, (15_000, 40_000), 60_000),  # the first tool
        (-0.5, (200, 400), 59_800),  # half-way through the tools
        (0.0, (600, 15_000), 59_400),  # the instructions' first character
        (0.99, (7_000, 14_900), 53_000),  # their end
        (0.99, (), 60_000),
        (1.0, (15_000, 60_000), 45_000),
        (None, (15_000,), None),
    ],
)
def test_a_steady_head_saves_what_no_earlier_state_would_have_spared(
    place: float | None, states: tuple[int, ...], saved: int | None
) -> None:
    known = facts(stabilised=("clock: …",), steadied_at=place, checkpoints=states)
    begun = replace(started(60_000), borders=(600, *BORDERS[1:]))
    told = explain(match(), PLAN, begun, known)
    assert (told.stabilised, told.saved_tokens) == (("clock: …",), saved)
    assert told.header.endswith("from=device" if saved is None else f"; saved={saved}")


def test_other_weights_explain_everything() -> None:
    assert reason(match(), started(0), facts(model_changed=True)) is Reason.MODEL_CHANGED
    assert reason(match(), started(60_000), facts(model_changed=True)) is Reason.CACHE_HIT


# --- what the engine hadn't --------------------------------------------------------------------

DROPS = (Drop(60_000, Tier.HOST, "memory"), Drop(15_000, Tier.DEVICE, "memory"))
SUPERSEDED = (Drop(60_000, Tier.DEVICE, "superseded"),)


@pytest.mark.parametrize(
    ("begun", "known", "expected"),
    [
        (started(0), facts(engine_restarted=True), Reason.ENGINE_RESTARTED),
        (
            started(0, 60_000, ResumeReason.STATE_REJECTED),
            facts(drops=DROPS[1:]),
            Reason.STATE_REJECTED,
        ),
        (
            started(15_000, 60_000, ResumeReason.STATE_REJECTED),
            facts(drops=(Drop(60_000, Tier.DISK, "damaged"),), engine_restarted=True),
            Reason.STATE_REJECTED,
        ),
        (started(15_000, 60_000), facts(drops=DROPS), Reason.EVICTED),
        (started(0), facts(drops=DROPS), Reason.EVICTED),
        (started(15_000, 60_000), facts(drops=DROPS[1:]), Reason.CHECKPOINT_MISSING),
        (started(15_000, 60_000), facts(drops=SUPERSEDED), Reason.CHECKPOINT_MISSING),
        (started(0, 60_000), facts(drops=(*SUPERSEDED, DROPS[1])), Reason.EVICTED),
        (started(0), facts(), Reason.CHECKPOINT_MISSING),
        (started(15_000, 15_020), facts(effort_changed=True), Reason.REASONING_EFFORT_CHANGED),
        (started(15_000, 60_000), facts(effort_changed=True), Reason.CHECKPOINT_MISSING),
        (started(15_000, 15_020), facts(), Reason.INPUT_CHANGED),
    ],
)
def test_a_missing_state_has_the_cause_that_the_facts_show(
    begun: Started, known: Facts, expected: Reason
) -> None:
    assert reason(match(), begun, known) is expected


def test_an_eviction_says_what_it_cost_and_what_would_help() -> None:
    told = explain(match(), PLAN, started(15_000, 60_000), facts(drops=DROPS))
    assert "host checkpoint at token 60,000 had been dropped (memory)" in told.detail
    assert told.detail.endswith("fewer conversations or a pin would have kept it.")


@pytest.mark.parametrize(
    ("why", "end"),
    [
        ("slots: 2 main lines are kept", "kept). More slots or a pin would have kept it."),
        (
            "scratch slots: 4 side requests are kept",
            "kept). More slots or a pin would have kept it.",
        ),
        ("evicted by the operator", "had been dropped (evicted by the operator)."),
        ("disk limit", "(disk limit). A larger engine.disk_bytes or a pin would have kept it."),
    ],
)
def test_advice_is_given_only_where_it_would_have_helped(why: str, end: str) -> None:
    lost = (Drop(60_000, Tier.DEVICE, why),)
    told = explain(match(), PLAN, started(0, 60_000), facts(drops=lost))
    assert told.reason is Reason.EVICTED
    assert told.detail.endswith(end)


def test_a_drop_that_would_not_have_helped_is_not_blamed() -> None:
    """The tip is gone, but the client took back an item before it: the tip could not have been used anyway."""
    gone = match(divergence=VANISHED)
    known = facts(shared_messages=3, drops=(Drop(60_000, Tier.DEVICE, "memory"),))
    assert reason(gone, started(40_000), known) is Reason.TRANSIENT_ITEM


def test_the_longer_part_decides_between_a_change_and_a_missing_state() -> None:
    late = match(divergence=EDIT)
    nothing_there = facts(shared_messages=4)
    assert reason(late, started(15_000, 41_000), nothing_there) is Reason.CHECKPOINT_MISSING
    early = facts(shared_messages=2)
    assert reason(late, started(15_000, 15_200), early) is Reason.INPUT_CHANGED


def test_a_changed_head_is_the_reason_even_after_a_restart() -> None:
    changed = match(head_changed=("instructions",))
    assert reason(changed, started(0), facts(engine_restarted=True)) is Reason.INSTRUCTIONS_CHANGED


# --- new and side ------------------------------------------------------------------------------


def test_a_new_conversation_is_new_even_where_its_head_was_there() -> None:
    none_known = Facts(known_messages=0, head_messages=1)
    assert reason(match(None), started(0), none_known) is Reason.NEW_CONVERSATION
    told = explain(match(None), PLAN, started(15_000), none_known)
    assert told.reason is Reason.NEW_CONVERSATION
    assert "was there already" in told.detail


def test_a_side_request_is_one_unless_its_own_state_was_there() -> None:
    first = Facts(known_messages=0, head_messages=1)
    assert reason(side(), started(0), first) is Reason.SIDE_REQUEST
    told = explain(side(), PLAN, started(0), replace(first, hint="A setting stops title jobs"))
    assert told.detail.endswith("the main line is untouched. A setting stops title jobs.")
    assert reason(side("c9"), started(0), APPEND) is Reason.SIDE_REQUEST
    assert reason(side("c9"), started(59_900), APPEND) is Reason.CACHE_HIT
    assert reason(side("c9"), started(PROMPT - 1), APPEND) is Reason.CACHE_HIT


@pytest.mark.parametrize("reused", [0, 15_000, 41_000, 60_000])
@pytest.mark.parametrize("shared", [None, 1, 3, 5])
def test_there_is_always_exactly_one_reason(reused: int, shared: int | None) -> None:
    found = match(divergence=None if shared is None else EDIT)
    told = explain(found, PLAN, started(reused, 60_000), facts(shared_messages=shared))
    assert told.prefilled_tokens == PROMPT - reused
    assert told.detail.endswith(".")
    assert told.header.startswith(f"{told.reason}; slot=4;")
