"""The first difference, as a person is told it."""

from dataclasses import replace
from typing import Any

import pytest
from identity_talk import AGENT, SESSION, TOOLS, Talk, call, output, said, turn, user

from ninfer_proxy.compared import Difference, HeadText
from ninfer_proxy.identity.difference import describe
from ninfer_proxy.identity.head_difference import first_change, respelled
from ninfer_proxy.identity.stabilise import head_text
from ninfer_proxy.items import item_from_raw
from ninfer_proxy.types import Item, ToolSpec, Turn

CARRIER = user("<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nnone\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>")
ON = (user("Hi"), said("Hello!"), user("On."))


def compared(stored: list[Item], then: Turn, **before: Any) -> Difference | None:
    """What is told of a turn after one with the prompt `stored[:-1]` and the answer `stored[-1]`; `before` is its head."""
    first = turn(*stored[:-1], headers=SESSION, **before)
    talk = Talk()
    talk.ask(first, stored[-1])
    _, match = talk.ask(then)
    head = head_text(first, first.items)
    return describe(stored, then.items, match, head, head_text(then, then.items))


def difference(stored: list[Item], then: Turn, **before: Any) -> str | None:
    found = compared(stored, then, **before)
    return found.told if found else None


def system(text: str) -> Item:
    return item_from_raw({"type": "message", "role": "system", "content": text})


def test_an_append_has_no_difference() -> None:
    assert difference([user("Hi"), said("Hello!")], turn(*ON, headers=SESSION)) is None


def test_the_first_differing_character_is_named() -> None:
    stored = [user("Start."), said("Ok."), user("Take the left path."), said("Left.")]
    then = turn(user("Start."), said("Ok."), user("Take the right path."), headers=SESSION)
    assert compared(stored, then) == Difference(
        "input[2]:9",
        "item 2 (user message) differs at character 9: was “Take the left path.”, "
        "is “Take the right path.”",
    )


def test_what_does_not_count_is_not_the_difference() -> None:
    """Spaces around an answer and in arguments are a client's spelling; what follows them is what changed."""
    stored = [user("Run."), call("a", '{ "cmd" : "ls" }'), output("a", "x"), said("Ok.")]
    then = turn(user("Run."), call("a", '{"cmd":"lt"}'), output("a", "x"), headers=SESSION)
    assert compared(stored, then) == Difference(
        "input[1]:9",
        'item 1 (call of run) differs at character 9: was “{"cmd":"ls"}”, is “{"cmd":"lt"}”',
    )
    stored = [user("Hi"), said("  Hello!"), user("On."), said("Ok.")]
    then = turn(user("Hi"), said("Hello?"), user("On."), headers=SESSION)
    found = compared(stored, then)
    assert found is not None
    assert found.at == "input[1]:5"


def test_an_image_that_changed_is_named_although_no_text_did() -> None:
    def shown(data: str) -> Item:
        image = {"type": "input_image", "image_url": f"data:image/png;base64,{data}"}
        parts = [{"type": "input_text", "text": "Look."}, image]
        return item_from_raw({"type": "message", "role": "user", "content": parts})

    found = compared([shown("AAAA"), said("A cat.")], turn(shown("BBBB"), headers=SESSION))
    assert found == Difference(
        "input[0]", "item 0 (user message) differs in an image or file, not in its text"
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
    found = compared(
        [user("Name a bird."), said("Owl")], turn(user("Name a bird."), headers=SESSION)
    )
    assert found == Difference("input[1]", "the request ends before the assistant message “Owl”")


def test_a_vanished_item_comes_with_what_its_client_can_do() -> None:
    stored = [user("1"), CARRIER, said("one")]
    told = difference(stored, turn(user("1"), said("one"), user("2"), CARRIER, headers=SESSION))
    assert told is not None
    assert "is gone" in told
    assert "provider id" in told


def test_an_item_that_moved_to_the_end_is_told_as_such() -> None:
    """After a turn that was broken off nothing follows OpenClaw's note, and it stands behind the next message again."""
    talk = Talk()
    first = turn(user("0"), said("zero"), user("1"), CARRIER, headers=SESSION)
    items, identity, match = talk.store.match(first)
    talk.store.commit(None, items, identity, match, ())
    then = turn(user("0"), said("zero"), user("1"), user("2"), CARRIER, headers=SESSION)
    _, match = talk.ask(then)
    head = head_text(then, ())
    found = describe(items, then.items, match, head, head)
    assert found is not None
    assert found.told.startswith(
        "the user message “<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>> no…” "
        "ended the last request and comes again behind what is new"
    )


@pytest.mark.parametrize("place", ["instructions", "input[0]"])
def test_a_clock_in_the_instructions_is_called_one(place: str) -> None:
    def at(time: str) -> tuple[dict[str, Any], list[Item]]:
        text = f"{AGENT}\nCurrent time: {time}"
        if place == "instructions":
            return {"instructions": text}, []
        return {"instructions": None}, [system(text)]

    head, items = at("10:11")
    then_head, then_items = at("10:12")
    found = compared(
        [*items, user("Hi"), said("Hello!")],
        turn(*then_items, *ON, headers=SESSION, **then_head),
        **head,
    )
    assert found is not None
    assert found.at == f"{place}:51"
    subject = "the instructions differ" if place == "instructions" else f"{place} (system) differs"
    assert found.told == (
        f"{subject} at character 51: was “…base. Current time: 10:11”, is “…base. Current time: "
        "10:12” (the clock in the instructions changes with each request, and what follows it is "
        'computed anew; [identity] stabilise = ["clock"] would keep it the same for the engine)'
    )


def test_a_date_in_the_instructions_is_called_one() -> None:
    then = turn(*ON, headers=SESSION, instructions=f"{AGENT}\nCurrent date: 2026-12-01")
    before = f"{AGENT}\nCurrent date: 2026-11-30"
    told = difference([user("Hi"), said("Hello!")], then, instructions=before)
    assert told is not None
    assert told.endswith("(a date in the instructions changes each day)")


def test_instructions_that_are_only_longer_differ_at_their_end() -> None:
    then = turn(*ON, headers=SESSION, instructions=f"{AGENT} Be brief.")
    found = compared([user("Hi"), said("Hello!")], then)
    assert found is not None
    assert found.at == f"instructions:{len(AGENT)}"


# --- tools -------------------------------------------------------------------------------------

READ, RUN = TOOLS
FIND = ToolSpec("find", "Find files.", {"type": "object"})


@pytest.mark.parametrize(
    ("before", "now", "at", "told"),
    [
        (TOOLS, (READ,), "tools", "run was taken away (2 before, 1 now)"),
        (TOOLS, (READ, FIND, RUN), "tools[1]", "find was added (2 before, 3 now)"),
        (TOOLS, (FIND,), "tools[0]", "find was added and read, run were taken away"),
        ((READ, RUN), (), "tools", "read, run were taken away (2 before, 0 now)"),
    ],
)
def test_tools_that_came_and_went_are_named(
    before: tuple[ToolSpec, ...], now: tuple[ToolSpec, ...], at: str, told: str
) -> None:
    found = compared(
        [user("Hi"), said("Hello!")], turn(*ON, headers=SESSION, tools=now), tools=before
    )
    assert found is not None
    assert found.at == at
    assert found.told.startswith(f"the tools differ: {told}")


@pytest.mark.parametrize(
    ("changed", "at", "told"),
    [
        (
            replace(FIND, description="Find text."),
            "tools[1].description:5",
            "the description of tool find differs at character 5: was “Find files.”, is “Find text.”",
        ),
        (
            replace(FIND, parameters={"type": "object", "properties": {}}),
            "tools[1].parameters:2",
            'the parameters of tool find differ at character 2: was “{"type": "object"}”, '
            'is “{"properties": {}, "type":…”',
        ),
    ],
)
def test_a_tool_that_changed_is_told_to_the_character(
    changed: ToolSpec, at: str, told: str
) -> None:
    then = turn(*ON, headers=SESSION, tools=(READ, changed))
    assert compared([user("Hi"), said("Hello!")], then, tools=(READ, FIND)) == Difference(at, told)


def test_other_tools_are_named_even_where_nothing_else_is_known() -> None:
    talk = Talk()
    talk.ask(turn(user("Hi"), headers=SESSION), said("Hello!"))
    then = turn(*ON, headers=SESSION, tools=())
    _, match = talk.ask(then)
    head = head_text(then, then.items)
    assert describe([], then.items, match, None, head) == Difference("tools", "the tools differ")


# --- heads that mean the same ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "now", "at", "setting", "part"),
    [
        (HeadText("A", (READ, RUN)), HeadText("A", (RUN, READ)), "tools[0]", "tool_order", "tools"),
        (
            HeadText("A", (ToolSpec("f", None, {"a": 1, "b": 2}),)),
            HeadText("A", (ToolSpec("f", None, {"b": 2, "a": 1}),)),
            "tools[0].parameters:2",
            "tool_keys",
            "tools",
        ),
        (
            HeadText("x-client-attribution: 1\nA", ()),
            HeadText("x-client-attribution: 2\nA", ()),
            "instructions:22",
            "attribution",
            "instructions",
        ),
        (
            HeadText(None, (), (system("x-client-attribution: 1"), system("A"))),
            HeadText(None, (), (system("x-client-attribution: 2"), system("A"))),
            "input[0]:22",
            "attribution",
            "input[0]",
        ),
    ],
)
def test_what_is_written_otherwise_is_named_with_the_setting_that_would_help(
    before: HeadText, now: HeadText, at: str, setting: str, part: str
) -> None:
    found = respelled(before, now)
    assert found is not None
    assert found.at == at
    assert f'[identity] stabilise = ["{setting}"]' in found.told
    changed = first_change(before, now)
    assert changed is not None
    assert changed[0] == part
    assert 0 <= changed[1] < 1
    assert respelled(now, now) is None
    assert first_change(now, now) is None
