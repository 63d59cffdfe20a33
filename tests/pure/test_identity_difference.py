"""The first difference, as a person is told it."""

from identity_talk import AGENT, SESSION, Talk, call, output, said, turn, user

from ninfer_proxy.identity.difference import describe
from ninfer_proxy.types import Item, Turn

CARRIER = user("<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nnone\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>")


def difference(stored: list[Item], then: Turn) -> str | None:
    """What is told of a turn after one with the prompt `stored[:-1]` and the answer `stored[-1]`."""
    talk = Talk()
    talk.ask(turn(*stored[:-1], headers=SESSION), stored[-1])
    _, match = talk.ask(then)
    return describe(
        stored,
        then.items,
        match,
        stored_instructions=AGENT,
        instructions=then.instructions,
    )


def test_an_append_has_no_difference() -> None:
    then = turn(user("Hi"), said("Hello!"), user("On."), headers=SESSION)
    assert difference([user("Hi"), said("Hello!")], then) is None


def test_the_first_differing_character_is_named() -> None:
    stored = [user("Start."), said("Ok."), user("Take the left path."), said("Left.")]
    then = turn(user("Start."), said("Ok."), user("Take the right path."), headers=SESSION)
    assert difference(stored, then) == (
        "item 2 (user message) differs at character 9: was “Take the left path.”, "
        "is “Take the right path.”"
    )


def test_long_texts_are_cut_around_the_place() -> None:
    stored = [user("x" * 500 + "old" + "y" * 500), said("Ok.")]
    then = turn(user("x" * 500 + "new" + "y" * 500), headers=SESSION)
    told = difference(stored, then)
    assert told is not None
    assert "at character 500" in told
    assert len(told) < 200


def test_items_of_other_kinds_are_named_as_what_they_are() -> None:
    stored = [user("Run."), call("a"), output("a", "done"), said("Ok.")]
    told = difference(stored, turn(user("Run."), user("No, wait."), headers=SESSION))
    assert told == "item 1 was the call of run “{}” and is the user message “No, wait.”"


def test_a_request_that_ends_early_says_where() -> None:
    told = difference(
        [user("Name a bird."), said("Owl")], turn(user("Name a bird."), headers=SESSION)
    )
    assert told == "the request ends before the assistant message “Owl”"


def test_a_vanished_item_comes_with_what_its_client_can_do() -> None:
    stored = [user("1"), CARRIER, said("one")]
    told = difference(stored, turn(user("1"), said("one"), user("2"), CARRIER, headers=SESSION))
    assert told is not None
    assert "is gone" in told
    assert "provider id" in told


def test_a_clock_in_the_instructions_is_called_one() -> None:
    clock = f"{AGENT}\nCurrent time: 10:11"
    talk = Talk()
    talk.ask(turn(user("Hi"), headers=SESSION, instructions=clock), said("Hello!"))
    then = turn(
        user("Hi"),
        said("Hello!"),
        user("On."),
        headers=SESSION,
        instructions=clock.replace(":11", ":12"),
    )
    _, match = talk.ask(then)
    told = describe(
        [user("Hi"), said("Hello!")],
        then.items,
        match,
        stored_instructions=clock,
        instructions=then.instructions,
    )
    assert told is not None
    assert told.startswith("the instructions differ at character 51")
    assert "clock" in told


def test_other_tools_are_named_even_where_nothing_else_is_known() -> None:
    then = turn(user("Hi"), said("Hello!"), user("On."), headers=SESSION, tools=())
    assert difference([user("Hi"), said("Hello!")], then) == "the tools differ"
