"""Histories sent again whole, without any id: content alone tells whose turn it is."""

from hypothesis import given, settings
from hypothesis import strategies as st
from identity_talk import AGENT, CONTINUES, NEW, SIDE, Talk, call, output, said, told, turn, user

from ninfer_proxy.items import item_from_raw
from ninfer_proxy.types import ConversationId, Item


def test_a_history_that_grows_is_one_conversation() -> None:
    talk, history = Talk(), []
    for number in range(8):
        history.append(user(f"question {number}"))
        conversation, match = talk.ask(turn(*history), said(f"answer {number}"))
        history.append(said(f" answer {number}\n"))
        assert conversation == "c1"
        assert told(match) == (CONTINUES if number else NEW)
        assert match.divergence is None
        assert match.known_items == max(0, 2 * number)


def test_tool_calls_may_be_spelled_otherwise_and_reasoning_dropped() -> None:
    talk = Talk()
    thought = item_from_raw({"type": "reasoning", "id": "rs_1", "summary": []})
    talk.ask(turn(user("Run it.")), thought, call("call_1", '{ "cmd" : "ls" }'))
    history = (user("Run it."), call("call1", '{"cmd":"ls"}'), output("call1", "a.c"))
    assert talk.ask(turn(*history), said("Done."))[1].divergence is None
    _, match = talk.ask(turn(*history, said("Done."), user("Thanks.")))
    assert told(match) == CONTINUES
    assert match.shared == 4


def test_equal_openings_are_told_apart_once_they_differ() -> None:
    talk = Talk()
    talk.ask(turn(user("Hi")), said("Hello!"))
    talk.ask(turn(user("Hi"), said("Hello!"), user("Cats?")), said("Yes."))
    second, match = talk.ask(turn(user("Hi")), said("Good day."))
    assert told(match) == NEW
    first, match = talk.ask(
        turn(user("Hi"), said("Hello!"), user("Cats?"), said("Yes."), user("?"))
    )
    assert (first, told(match)) == ("c1", CONTINUES)
    again, _ = talk.ask(turn(user("Hi"), said("Good day."), user("Dogs?")))
    assert again == second == "c2"


def test_asking_the_one_question_again_stays_in_place() -> None:
    talk = Talk()
    talk.ask(turn(user("Name a bird.")), said("Owl"))
    conversation, match = talk.ask(turn(user("Name a bird.")), said("Owl"))
    assert (conversation, told(match)) == ("c1", CONTINUES)
    assert match.divergence is not None
    assert match.divergence.item_index is None
    assert match.evidence[1] == "the first 1 of its 2 items comes again"


def test_an_edit_rewinds_the_same_conversation() -> None:
    talk = Talk()
    start = (user("Start."), said("Ok."))
    talk.ask(turn(start[0]), start[1])
    talk.ask(turn(*start, user("Path A.")), said("A!"))
    conversation, match = talk.ask(turn(*start, user("Path B.")), said("B!"))
    assert (conversation, told(match)) == ("c1", CONTINUES)
    assert match.divergence is not None
    assert (match.divergence.stored_index, match.divergence.item_index) == (2, 2)
    assert match.known_items == 2
    back, _ = talk.ask(turn(*start, user("Path A."), said("A!"), user("On.")))
    assert back == "c1"


def test_other_instructions_over_the_same_history_follow_the_line() -> None:
    talk = Talk()
    talk.ask(turn(user("Hi")), said("Hello!"))
    clock = f"{AGENT} It is 10:12."
    conversation, match = talk.ask(
        turn(user("Hi"), said("Hello!"), user("Time?"), instructions=clock)
    )
    assert (conversation, told(match)) == ("c1", CONTINUES)
    assert match.head_changed == ("instructions",)


def test_the_same_question_to_another_agent_is_another_conversation() -> None:
    talk = Talk()
    talk.ask(turn(user("Hi")), said("Hello!"))
    talk.store.running(ConversationId("c1"), 1)
    assert told(talk.ask(turn(user("Hi"), instructions="You are a poet."))[1]) == NEW


def test_a_title_job_without_ids_has_a_side_line() -> None:
    talk = Talk()
    talk.ask(turn(user("Plan a trip")), said("Sure."))
    job = turn(
        user("Give this chat a title of at most five words.\n\nUSER: Plan a trip"),
        instructions="You name chats.",
        tools=(),
    )
    side, match = talk.ask(job, said("A trip"))
    assert told(match) == SIDE
    assert match.side_kind == "title"
    conversation, match = talk.ask(turn(user("Plan a trip"), said("Sure."), user("By train.")))
    assert (conversation, match.head_changed) == ("c1", ())
    assert talk.ask(job)[0] == side


def test_what_only_looked_like_a_title_job_becomes_a_conversation() -> None:
    talk = Talk()
    ask = user("Write a title for a talk about a conversation of two cats.")
    side, match = talk.ask(turn(ask, tools=()), said("Two cats"))
    assert told(match) == SIDE
    conversation, match = talk.ask(turn(ask, said("Two cats"), user("Shorter."), tools=()))
    assert (conversation, told(match)) == (side, CONTINUES)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("xyz"), st.booleans(), st.text(max_size=8)),
        min_size=1,
        max_size=25,
    ),
    st.booleans(),
)
def test_histories_that_only_grow_always_continue(
    steps: list[tuple[str, bool, str]], named: bool
) -> None:
    """Several clients take turns, each resending its whole history: each stays in its one conversation."""
    talk = Talk()
    histories: dict[str, list[Item]] = {}
    homes: dict[str, ConversationId] = {}
    for number, (client, runs_tool, text) in enumerate(steps):
        history = histories.setdefault(client, [user(f"I am {client}.")])
        history.append(user(text))
        answer = call(f"call_{number}") if runs_tool else said(f"answer {number}")
        headers = {"session-id": client} if named else {}
        conversation, match = talk.ask(turn(*history, headers=headers), answer)
        assert told(match) == (CONTINUES if client in homes else NEW)
        assert homes.setdefault(client, conversation) == conversation
        assert match.divergence is None
        history.append(answer)
        if runs_tool:
            history.append(output(f"call_{number}", text))
