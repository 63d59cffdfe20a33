"""Deltas become items: kinds in order, ids of their own, white space that means nothing left out, nothing else lost."""

from collections import Counter
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from engine.api import Delta, DeltaKind, RequestId
from ninfer_proxy.events import ItemAdded, ItemDone, ReasoningAdded, TextAdded, TurnEvent
from ninfer_proxy.output import OutputBuilder
from ninfer_proxy.types import FunctionCallItem, MessageItem, ReasoningItem

REQUEST = RequestId("r")


def counted_ids() -> Callable[[str], str]:
    counts: Counter[str] = Counter()

    def new_id(prefix: str) -> str:
        counts[prefix] += 1
        return f"{prefix}_{counts[prefix]}"

    return new_id


def text(piece: str) -> Delta:
    return Delta(REQUEST, DeltaKind.TEXT, piece)


def thought(piece: str) -> Delta:
    return Delta(REQUEST, DeltaKind.REASONING, piece)


def call(name: str, arguments: str) -> Delta:
    return Delta(REQUEST, DeltaKind.TOOL_CALL, call=(name, arguments))


def play(
    *deltas: Delta, cut: bool = False, encrypted: bool = False
) -> tuple[OutputBuilder, list[TurnEvent]]:
    builder = OutputBuilder(counted_ids(), encrypted_reasoning=encrypted)
    events = [event for delta in deltas for event in builder.add(delta)]
    return builder, events + builder.finish(cut=cut)


def test_reasoning_text_and_calls_in_order() -> None:
    builder, events = play(
        thought("Let me "), thought("see."), text("\n\n"), text("I look."), call("ls", '{"a":1}')
    )
    reasoning, message, function = builder.output
    assert reasoning == ReasoningItem(
        "Let me see.",
        None,
        {
            "id": "rs_1",
            "type": "reasoning",
            "status": "completed",
            "summary": [{"type": "summary_text", "text": "Let me see."}],
            "content": [{"type": "reasoning_text", "text": "Let me see."}],
        },
    )
    assert isinstance(message, MessageItem)
    assert message.text == "\n\nI look."
    assert function == FunctionCallItem(
        "call_1",
        "ls",
        '{"a":1}',
        {
            "id": "fc_1",
            "type": "function_call",
            "status": "completed",
            "call_id": "call_1",
            "name": "ls",
            "arguments": '{"a":1}',
        },
    )
    shapes = [(type(event), event.index) for event in events if not isinstance(event, TextAdded)]
    assert shapes == [
        (ItemAdded, 0),
        (ReasoningAdded, 0),
        (ReasoningAdded, 0),
        (ItemDone, 0),
        (ItemAdded, 1),
        (ItemDone, 1),
        (ItemAdded, 2),
        (ItemDone, 2),
    ]
    assert [event.text for event in events if isinstance(event, TextAdded)] == ["\n\nI look."]


def test_white_space_alone_makes_no_item() -> None:
    builder, _ = play(thought("\n"), text("\n\n"), call("a", "{}"), text("\n"), call("b", "{}"))
    assert [type(item) for item in builder.output] == [FunctionCallItem, FunctionCallItem]
    assert [item.call_id for item in builder.output if isinstance(item, FunctionCallItem)] == [
        "call_1",
        "call_2",
    ]


def test_nothing_at_all_is_one_empty_message() -> None:
    builder, events = play(text(" "))
    (message,) = builder.output
    assert isinstance(message, MessageItem)
    assert message.text == ""
    assert message.raw["content"] == [
        {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    ]
    assert [type(event) for event in events] == [ItemAdded, ItemDone]


def test_only_the_open_item_is_incomplete_when_cut() -> None:
    builder, _ = play(thought("done"), text("half a sen"), cut=True)
    assert [item.raw["status"] for item in builder.output] == ["completed", "incomplete"]
    builder, _ = play(text("whole"), call("f", "{}"), cut=True)
    assert [item.raw["status"] for item in builder.output] == ["completed", "completed"]


def test_opening_items_are_empty_and_in_progress() -> None:
    _, events = play(thought("t"), text("x"), call("f", '{"a": 1}'))
    opened = [event.raw for event in events if isinstance(event, ItemAdded)]
    assert [raw["status"] for raw in opened] == ["in_progress"] * 3
    assert (opened[0]["summary"], opened[0]["content"]) == ([], [])
    assert opened[1]["content"] == []
    assert opened[2]["arguments"] == ""


def test_encrypted_reasoning_is_a_token_that_names_the_item() -> None:
    builder, _ = play(thought("secret"), text("x"), encrypted=True)
    item = builder.output[0]
    assert isinstance(item, ReasoningItem)
    assert item.encrypted == item.raw["encrypted_content"] == item.raw["id"] == "rs_1"


PIECES = st.sampled_from(["", " ", "\n\n", "a", " b ", "ü😀"])
DELTAS = st.lists(
    st.builds(text, PIECES) | st.builds(thought, PIECES) | st.just(call("f", "{}")), max_size=12
)


@given(DELTAS, st.booleans())
def test_events_and_items_agree(deltas: list[Delta], cut: bool) -> None:
    builder, events = play(*deltas, cut=cut)
    assert builder.output
    added = [event.index for event in events if isinstance(event, ItemAdded)]
    done = [event for event in events if isinstance(event, ItemDone)]
    assert added == [event.index for event in done] == list(range(len(builder.output)))
    assert [event.item for event in done] == list(builder.output)
    for index, item in enumerate(builder.output):
        pieces = [
            event.text
            for event in events
            if isinstance(event, TextAdded | ReasoningAdded) and event.index == index
        ]
        assert "".join(pieces) == getattr(item, "text", "")
    order = [
        event.index
        for event in events
        if isinstance(event, ItemAdded | ItemDone | TextAdded | ReasoningAdded)
    ]
    assert order == sorted(order)
    wanted = "".join(delta.text for delta in deltas if delta.kind is DeltaKind.TEXT).split()
    shown = "".join(item.text for item in builder.output if isinstance(item, MessageItem)).split()
    assert "".join(shown) == "".join(wanted)


def test_ids_are_unique() -> None:
    builder, _ = play(text("a"), call("f", "{}"), text("b"), call("f", "{}"), thought("c"))
    ids = [item.raw["id"] for item in builder.output]
    assert ids == ["msg_1", "fc_1", "msg_2", "fc_2", "rs_1"]
