"""What counts in an item and what doesn't: equal digests for equal meaning, different ones for different meaning."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer_proxy.identity.canonical import (
    digest,
    digests,
    group_digest,
    head_digest,
    head_length,
    without_attribution,
)
from ninfer_proxy.items import item_from_raw
from ninfer_proxy.types import Item, ToolSpec

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
)
nested = st.lists(scalars, max_size=3) | st.dictionaries(st.text(max_size=3), scalars, max_size=3)
objects = st.dictionaries(st.text(max_size=5), scalars | nested, max_size=4)


def message(role: str, content: Any, **more: Any) -> Item:
    return item_from_raw({"type": "message", "role": role, "content": content, **more})


def call(arguments: str, call_id: str = "call_1", name: str = "run", **more: Any) -> Item:
    return item_from_raw(
        {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments} | more
    )


def output(text: Any, call_id: str = "call_1") -> Item:
    return item_from_raw({"type": "function_call_output", "call_id": call_id, "output": text})


def part(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "input_text", "text": text, **more}


# --- equal -------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(objects, st.integers(0, 3), st.booleans())
def test_arguments_are_compared_as_json(
    value: dict[str, Any], indent: int, ascii_only: bool
) -> None:
    shuffled = dict(reversed(value.items()))
    spelled = json.dumps(shuffled, indent=indent or None, ensure_ascii=ascii_only)
    compact = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    assert digest(call(spelled)) == digest(call(compact))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(), max_size=5), st.sampled_from(["user", "assistant", "system"]))
def test_parts_are_only_a_way_to_cut_text(texts: list[str], role: str) -> None:
    whole = message(role, "".join(texts))
    assert digest(message(role, [part(text) for text in texts])) == digest(whole)
    marked = [part(text, cache_control={"type": "ephemeral"}, annotations=[]) for text in texts]
    assert digest(message(role, marked, id="msg_1", status="completed")) == digest(whole)


@settings(max_examples=50, deadline=None)
@given(st.text())
def test_white_space_around_an_answer_does_not_count(text: str) -> None:
    assert digest(message("assistant", f" \n{text}\n\n ")) == digest(message("assistant", text))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (message("developer", "Be brief."), message("system", "Be brief.")),
        (call("{}", call_id="call_000060"), call("{}", call_id="call000060")),
        (call("{}", id="fc_1", status="completed"), call("")),
        (call('{"n": 2.0}'), call('{"n": 2}')),
        (call('{"x":"\\u00e9"}'), call('{"x":"é"}')),
        (output("hi"), output([part("hi")])),
        (
            message("system", "x-anthropic-billing-header: cc_version=2.1; cch=1;\nBe brief."),
            message("system", "x-anthropic-billing-header: cc_version=2.2; cch=2;\nBe brief."),
        ),
    ],
)
def test_spelled_otherwise(one: Item, other: Item) -> None:
    assert digest(one) == digest(other)


def test_images_count_by_their_bytes() -> None:
    pixels = base64.b64encode(b"pixels").decode()
    flat = {"type": "input_image", "image_url": f"data:image/png;base64,{pixels}"}
    nested = {
        "type": "image_url",
        "image_url": {"url": f"data:image/x-png;base64,{pixels}", "detail": "auto"},
    }
    other = base64.b64encode(b"pixelz").decode()
    shown = digest(message("user", [part("See"), flat]))
    assert shown == digest(message("user", [part("See"), nested]))
    assert shown != digest(message("user", [flat, part("See")]))
    assert shown != digest(message("user", [part("See")]))
    changed = {**flat, "image_url": f"data:image/png;base64,{other}"}
    assert shown != digest(message("user", [part("See"), changed]))


# --- different ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (message("user", "a"), message("user", "a ")),
        (message("user", "a"), message("assistant", "a")),
        (message("user", "a"), output("a")),
        (call('{"a":1}'), call('{"a":"1"}')),
        (call('{"a":null}'), call("{}")),
        (call("{}"), call("{}", name="walk")),
        (call('{"a":1'), call('{"a":2')),
        (message("system", "Time: 10:11"), message("system", "Time: 10:12")),
    ],
)
def test_something_else(one: Item, other: Item) -> None:
    assert digest(one) != digest(other)


def test_an_output_belongs_to_its_call() -> None:
    both = [call('{"q":1}', "a"), call('{"q":2}', "b")]
    straight = digests([*both, output("one", "a"), output("two", "b")])
    swapped = digests([*both, output("one", "b"), output("two", "a")])
    assert straight[:2] == swapped[:2]
    assert straight[2:] != swapped[2:]
    renamed = [call('{"q":1}', "x_1"), call('{"q":2}', "x_2")]
    again = digests([*renamed, output("one", "x1"), output("two", "x2")])
    assert again == straight


def test_equal_call_ids_are_paired_in_order() -> None:
    repeated = [call("{}", "c1"), output("x", "c1"), call("{}", "c1"), output("y", "c1")]
    distinct = [call("{}", "c1"), output("x", "c1"), call("{}", "c2"), output("y", "c2")]
    assert digests(repeated) == digests(distinct)


# --- what doesn't count at all -----------------------------------------------------------------


def test_reasoning_and_unknown_items_do_not_count() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    kinds = [reasoning, {"type": "web_search_call", "id": "ws_1"}]
    assert [digest(item_from_raw(raw)) for raw in kinds] == [None, None]
    assert digest(message("assistant", " \n")) is None
    assert digest(message("user", "")) is not None


def test_a_group_is_named_by_what_counts_in_it() -> None:
    answer, tool = digest(message("assistant", "Look.")), digest(call("{}"))
    assert group_digest([None, answer, None, tool]) == group_digest([answer, tool])
    assert group_digest([answer]) != group_digest([answer, tool])
    assert group_digest([tool, answer]) != group_digest([answer, tool])


@settings(max_examples=50, deadline=None)
@given(st.text())
def test_no_text_breaks_a_digest(text: str) -> None:
    broken = text + "\ud800"
    items = [message("user", broken), message("system", broken), call(broken), output(broken)]
    assert all(len(each or b"") == 16 for each in digests(items))


def test_deep_and_huge_arguments_are_told_apart() -> None:
    deep = '{"a":' * 3000 + "1" + "}" * 3000
    assert digest(call(deep)) != digest(call(deep.replace("1", "2")))
    assert digest(call(f'{{"n":{10**30}}}')) == digest(call(f'{{ "n" : {10**30} }}'))


# --- heads -------------------------------------------------------------------------------------


def tool(name: str, **properties: Any) -> ToolSpec:
    return ToolSpec(name, None, {"type": "object", "properties": properties})


def test_tools_are_a_set_and_their_schemas_have_no_order() -> None:
    read = tool("read", path={"type": "string"}, limit={"type": "integer"})
    turned = tool("read", limit={"type": "integer"}, path={"type": "string"})
    write = tool("write")
    head = head_digest((read, write), "Be brief.", ())
    assert head == head_digest((write, turned), "Be brief.", ())
    assert head.tools != head_digest((read,), "Be brief.", ()).tools
    assert head.instructions != head_digest((read, write), "Be long.", ()).instructions


def test_instructions_and_leading_system_items_are_one_head() -> None:
    items = [message("system", "A"), message("developer", "B"), message("user", "Hi")]
    assert head_length(items) == 2
    assert head_digest((), "A", [items[1]]) == head_digest((), None, items[:2])
    assert head_digest((), "A", ()) != head_digest((), None, items[:2])


def test_an_attribution_line_is_no_instruction() -> None:
    line = "x-client-attribution: ver=3.1.9; entry=cli; sum=c4ca4;"
    assert without_attribution(f"{line}\nBe brief.") == "Be brief."
    assert head_digest((), "A", [message("system", line)]) == head_digest((), "A", ())
