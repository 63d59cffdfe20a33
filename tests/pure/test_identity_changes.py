"""What a client took out, shortened or summed up: transient items, edits, compactions."""

from typing import Any

import pytest
from identity_talk import CONTINUES, SESSION, SIDE, Talk, call, output, said, told, turn, user

from ninfer_proxy.types import Item


def test_an_item_that_vanishes_is_transient_even_some_turns_later() -> None:
    talk = Talk()
    note = user("<context>nothing runs</context>")
    talk.ask(turn(user("1"), note, headers=SESSION), said("a1"))
    later = (user("1"), said("a1"), user("2"), said("lost"), user("3"), note)
    _, match = talk.ask(turn(*later, headers=SESSION), said("a3"))
    assert match.divergence is not None
    assert (match.divergence.transient, match.divergence.stored_index) == (True, 1)
    assert match.divergence.item_index == 1
    assert (match.shared, match.known_items) == (2, 2)
    two_gone = (user("1"), said("a1"), user("2"), said("lost"), user("3"), said("a3"), user("4"))
    _, match = talk.ask(turn(*two_gone, headers=SESSION))
    assert match.divergence is not None
    assert match.divergence.transient


def test_a_shortened_tool_output_is_an_edit() -> None:
    talk = Talk()
    head = (user("Build."), call("a"))
    talk.ask(turn(*head, output("a", "long " * 50), user("Sum up."), headers=SESSION), said("Ok."))
    shortened = (*head, output("a", "long"), user("Sum up."), said("Ok."), user("More."))
    _, match = talk.ask(turn(*shortened, headers=SESSION))
    assert match.divergence is not None
    assert (match.divergence.transient, match.compacted) == (False, False)
    assert (match.divergence.item_index, match.known_items) == (2, 5)


def long_talk(talk: Talk, **known: Any) -> list[Item]:
    history: list[Item] = []
    for number in range(4):
        history.append(user(f"q{number}"))
        talk.ask(turn(*history, **known), said(f"a{number}"))
        history.append(said(f"a{number}"))
    return history


@pytest.mark.parametrize(
    "opening",
    [
        "The conversation history before this point was compacted into the following summary:\n",
        "This session is being continued from a previous conversation that ran out of context.",
        "Summary of earlier work: four questions.",
    ],
)
def test_a_summary_in_place_of_the_history_is_a_compaction(opening: str) -> None:
    talk = Talk()
    long_talk(talk, headers=SESSION)
    conversation, match = talk.ask(turn(user(opening), user("Go on."), headers=SESSION))
    assert (conversation, match.compacted, match.shared) == ("c1", True, 0)


def test_a_kept_end_without_the_rest_is_a_compaction() -> None:
    talk = Talk()
    history = long_talk(talk, headers=SESSION)
    kept = (user("What was before: questions."), *history[-2:], user("Go on."))
    _, match = talk.ask(turn(*kept, headers=SESSION))
    assert match.compacted
    assert match.known_items == 3


def test_ids_that_come_back_find_a_compacted_conversation() -> None:
    talk = Talk()
    talk.ask(turn(user("Do it.")), call("call_77"))
    history = (user("Do it."), call("call_77"), output("call_77", "done"))
    talk.ask(turn(*history), said("It is done."))
    cut = (user("Notes: it was begun."), call("call_77"), output("call_77", "done"), user("And?"))
    conversation, match = talk.ask(turn(*cut))
    assert (conversation, told(match)) == ("c1", CONTINUES)
    assert "came back" in match.evidence[0]


@pytest.mark.parametrize("opening", ["Run it.", "[Mon 09:30] Run it."])
def test_a_job_that_brings_ids_back_without_any_tools_is_no_turn_of_its_conversation(
    opening: str,
) -> None:
    """OpenClaw's second try for an answer after tool calls: no session, no instructions, no tools, messages without stamps."""
    talk = Talk()
    asked = (user(opening),)
    main, _ = talk.ask(turn(*asked), call("call_1"))
    asked = (*asked, call("call_1"), output("call_1", "done"))
    talk.ask(turn(*asked), said(""))
    job = (user("Run it."), *asked[1:], user("Produce the final answer now."))
    _, match = talk.ask(turn(*job, instructions=None, tools=()), said("It is done."))
    assert (told(match), match.parent) == (SIDE, main)
    conversation, match = talk.ask(turn(*asked, said("It is done."), user("Thanks.")))
    assert (conversation, told(match)) == (main, CONTINUES)
