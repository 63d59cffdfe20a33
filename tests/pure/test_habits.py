"""What requests show of their clients' habits, and how that is counted."""

import pytest
from identity_talk import SESSION, Talk, call, output, said, turn, user

from ninfer_proxy.habits import Place, Seen, Tally, learned
from ninfer_proxy.items import item_from_raw
from ninfer_proxy.turn.observed import observed
from ninfer_proxy.types import Item

ASK, NOTE, ANSWER, NEXT = user("do it"), user("<note>"), said("done"), user("and now?")
LAST, SECOND_LAST = Place("user", 1), Place("user", 2)


def shown(before: tuple[Item, ...], answer: Item, request: tuple[Item, ...]) -> Seen:
    """What `request` shows after a turn with the prompt `before` was answered."""
    talk = Talk()
    talk.ask(turn(*before, headers=SESSION), answer)
    items, _, match = talk.store.match(turn(*request, headers=SESSION))
    return observed(match, (*before, answer), items)


def test_a_note_that_is_gone_while_its_answer_stays_was_taken_back() -> None:
    assert shown((ASK, NOTE), ANSWER, (ASK, ANSWER, NEXT, NOTE)) == {LAST: True}


def test_a_note_that_is_rewritten_counts_as_taken_back() -> None:
    assert shown((ASK, NOTE), ANSWER, (ASK, user("<other>"), ANSWER, NEXT)) == {LAST: True}


def test_a_note_before_the_question_is_known_by_its_place() -> None:
    assert shown((NOTE, ASK), ANSWER, (ASK, ANSWER, NEXT)) in ({}, {SECOND_LAST: True})
    older = (ASK, ANSWER)
    assert shown((*older, NOTE, NEXT), said("yes"), (*older, NEXT, said("yes"), ASK)) == {
        SECOND_LAST: True
    }


def test_in_a_tool_loop_the_place_is_that_in_the_prompt_that_brought_it() -> None:
    """The line goes on behind the note with a call and its output; the note ended the prompt before those."""
    loop = (call("c1"), output("c1", "ok"))
    before, request = (ASK, NOTE, *loop), (ASK, *loop, ANSWER, NEXT)
    assert shown(before, ANSWER, request) == {LAST: True}


def test_a_tool_output_that_is_shortened_later_is_a_habit_too() -> None:
    before = (ASK, call("c1"), output("c1", "long"))
    request = (ASK, call("c1"), output("c1", "short"), ANSWER, NEXT)
    assert shown(before, ANSWER, request) == {Place("tool", 1): True}


def test_what_is_still_there_when_the_user_goes_on_was_kept() -> None:
    request = (ASK, NOTE, ANSWER, NEXT)
    assert shown((ASK, NOTE), ANSWER, request) == {LAST: False, SECOND_LAST: False}


def test_within_a_tool_loop_nothing_is_decided_yet() -> None:
    first = call("c1")
    assert shown((ASK, NOTE), first, (ASK, NOTE, first, output("c1", "ok"))) == {}


def test_an_edit_by_the_user_is_no_habit() -> None:
    older = (ASK, ANSWER)
    assert shown((*older, NEXT), said("yes"), (*older, user("or this?"))) == {}


def test_a_compaction_is_no_habit() -> None:
    summary = user("Summary of the earlier conversation: much was done")
    before = (ASK, ANSWER, NEXT, said("a"), NEXT)
    assert shown(before, said("b"), (summary, said("b"), NEXT)) == {}


def test_what_happened_lately_counts_more() -> None:
    habits: dict[Place, Tally] = {}
    for gone in (True, True, False):
        habits = dict(learned(habits, {LAST: gone}))
    assert habits[LAST].gone == pytest.approx(0.75 + 0.75**2)
    assert habits[LAST].kept == 1.0
    assert habits[LAST].share == pytest.approx(1.3125 / 2.3125)
    assert Tally().share == 0.0


def test_counts_stay_bounded_and_others_are_left_alone() -> None:
    habits = {SECOND_LAST: Tally(1.0, 2.0)}
    for _ in range(1000):
        habits = dict(learned(habits, {LAST: True}))
    assert habits[LAST].gone <= 4.0
    assert habits[SECOND_LAST] == Tally(1.0, 2.0)


def test_items_without_a_message_have_no_place() -> None:
    opaque = item_from_raw({"type": "web_search_call", "id": "w"})
    request = (ASK, NOTE, opaque, ANSWER, NEXT)
    assert shown((ASK, NOTE, opaque), ANSWER, request) == {LAST: False, SECOND_LAST: False}
