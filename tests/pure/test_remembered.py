"""What is remembered of last turns: only what is equal item by item, of the same tenant, within bounds."""

from dataclasses import replace

import pytest

from ninfer_proxy.items import item_from_raw
from ninfer_proxy.prompt import NO_PAST, AssistantGroup, Past, ReplayedOutput
from ninfer_proxy.store.records import RecordedItem
from ninfer_proxy.turn import remembered
from ninfer_proxy.turn.remembered import Known, LastTurn, LastTurns
from ninfer_proxy.types import ConversationId, Item, ItemDigest, ResponseId, TenantKey

A, B = TenantKey("a"), TenantKey("b")


def said(text: str, role: str = "user", **more: object) -> Item:
    return item_from_raw({"type": "message", "role": role, "content": text, **more})


def turn(
    name: str,
    prompt: list[Item],
    output: list[Item],
    tenant: TenantKey = A,
    readable: bool = True,
) -> LastTurn:
    def recorded(items: list[Item]) -> tuple[RecordedItem, ...]:
        return tuple(RecordedItem(item, ItemDigest(b"d" * 16)) for item in items)

    return LastTurn(
        tenant,
        ConversationId(name),
        ResponseId(f"resp_{name}"),
        readable,
        recorded(prompt),
        recorded(output),
        owners=(),
        turns={},
        said=SAID,
        instructions="be",
        past=Past((), (0, 1)),
    )


SAID = ReplayedOutput("hm", None)
ONE, ANSWER, TWO = said("one"), said("yes", "assistant", id="msg_1"), said("two")


def kept(*turns: LastTurn) -> LastTurns:
    last_turns = LastTurns()
    for each in turns:
        last_turns.keep(each)
    return last_turns


def test_a_history_is_known_as_far_as_it_is_the_same_on_the_wire() -> None:
    last_turns = kept(turn("c", [ONE], [ANSWER]))
    assert len(last_turns.beginning(A, [ONE, ANSWER, TWO]).items) == 2
    respelled = said("yes", "assistant")
    assert len(last_turns.beginning(A, [ONE, respelled, TWO]).items) == 1
    assert last_turns.beginning(A, [said("One"), ANSWER, TWO]) == Known()
    assert last_turns.beginning(A, []) == Known()


def test_nothing_of_another_tenant_is_known() -> None:
    last_turns = kept(turn("c", [ONE], [ANSWER]))
    assert last_turns.beginning(B, [ONE, ANSWER, TWO]) == Known()
    assert last_turns.named(B, ResponseId("resp_c")) is None
    assert last_turns.named(A, ResponseId("resp_c")) is not None


def test_a_response_that_may_not_be_read_is_not_named() -> None:
    last_turns = kept(turn("c", [ONE], [ANSWER], readable=False))
    assert last_turns.named(A, ResponseId("resp_c")) is None
    assert last_turns.beginning(A, [ONE, TWO]) != Known()


def test_the_longest_prompt_counts() -> None:
    short, long = turn("short", [ONE], [ANSWER]), turn("long", [ONE, ANSWER, TWO], [])
    for last_turns in (kept(short, long), kept(long, short)):
        known = last_turns.beginning(A, [ONE, ANSWER, TWO, TWO])
        assert known.last is not None
        assert known.last.conversation == "long"
        assert known.prompt_items == 3


def test_an_output_is_known_where_it_came_back_whole_and_nothing_may_belong_to_it() -> None:
    last_turns = kept(turn("c", [ONE], [ANSWER, ANSWER]))
    whole = [ONE, ANSWER, ANSWER]
    for items, found in (
        (whole, 3),
        ([*whole, TWO], 3),
        ([ONE, ANSWER, TWO], 1),
        ([*whole, said("more", "assistant")], 1),
        ([ONE, said("yes", "assistant"), ANSWER], 1),
    ):
        known, turns = last_turns.beginning(A, items).turns(items)
        assert known == found
        assert turns == ({AssistantGroup(1, 3): SAID} if found == 3 else {})


def test_owners_are_those_of_the_whole_last_turn_or_unknown() -> None:
    last = turn("c", [ONE], [ANSWER])
    assert Known(last).owners_with([ConversationId("d")]) == ("c", "d")
    assert Known(replace(last, owners=None)).owners_with([ConversationId("d")]) is None
    assert Known().owners_with([ConversationId("d")]) is None


def test_a_prompt_is_the_same_under_the_same_instructions_only() -> None:
    known = kept(turn("c", [ONE], [ANSWER])).beginning(A, [ONE, ANSWER])
    assert known.past("be") == Past((), (0, 1))
    assert known.past("be else") == known.past(None) == NO_PAST


def test_a_prompt_that_ends_within_an_assistant_turn_is_not_kept() -> None:
    assert kept(turn("c", [ONE, ANSWER], [])).beginning(A, [ONE, ANSWER, ANSWER]) == Known()


def test_one_turn_of_each_conversation_is_kept_until_all_is_forgotten() -> None:
    last_turns = kept(turn("c", [ONE], [ANSWER]), turn("c", [TWO], [ANSWER]))
    assert last_turns.beginning(A, [ONE, ANSWER]) == Known()
    assert last_turns.beginning(A, [TWO, ANSWER]) != Known()
    last_turns.forget()
    assert last_turns.beginning(A, [TWO, ANSWER]) == Known()


def test_turns_and_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "TURNS", 3)
    monkeypatch.setattr(remembered, "BYTES", 10_000)
    last_turns = kept(*(turn(f"c{n}", [said(f"{n}")], []) for n in range(5)))
    found = [last_turns.beginning(A, [said(f"{n}")]) != Known() for n in range(5)]
    assert found == [False, False, True, True, True]
    last_turns.keep(turn("big", [said("x" * 9_940)], []))
    assert last_turns.beginning(A, [said("4")]) == Known()
    last_turns.keep(turn("too big", [said("y" * 10_100)], []))
    assert last_turns.beginning(A, [said("x" * 9_940)]) != Known()
    assert last_turns.beginning(A, [said("y" * 10_100)]) == Known()
