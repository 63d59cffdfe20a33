"""Cutting text into prose and calls loses nothing, wherever the text is cut on its way in."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textkit import FUZZ

from engine.text.scanner import CallScanner
from engine.text.stops import StopMatcher
from engine.text.tool_calls import Call

TOOLS = {
    "run": {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]},
    "find": {"type": "object", "properties": {"pattern": {"type": "string"}, "limit": {}}},
}
WHOLE = "<tool_call>\n<function=run>\n<parameter=cmd>\nls\n</parameter>\n</function>\n</tool_call>"

fragments = st.sampled_from(
    ["<tool_call>", "</tool_call>", "<function=run>", "<function=find>", "<function=no>", "</function>", "<parameter=cmd>",
     "<parameter=pattern>", "<parameter=limit>", "</parameter>", "\n", " ", "x", "{", '{"name": "run", "arguments": {}}', "}", "<", WHOLE]
)  # fmt: skip
sources = st.lists(fragments, max_size=16).map("".join)


def source_of(item: str | Call) -> str:
    return item if isinstance(item, str) else item.source


def merged(items: list[str | Call]) -> list[str | Call]:
    result: list[str | Call] = []
    for item in items:
        if isinstance(item, str) and result and isinstance(result[-1], str):
            result[-1] += item
        else:
            result.append(item)
    return result


@settings(FUZZ, max_examples=400)
@given(source=sources, cuts=st.lists(st.integers(0, 200), max_size=6), ended=st.booleans())
def test_nothing_is_lost_and_cuts_do_not_matter(source: str, cuts: list[int], ended: bool) -> None:
    scanner, borders = CallScanner(TOOLS), sorted({0, *cuts, len(source)})
    pieces = [source[a:b] for a, b in pairwise(borders)]
    items = [item for piece in pieces for item in scanner.feed(piece)] + scanner.finish(ended)
    assert "".join(map(source_of, items)) == source
    assert scanner.held == ""
    slow = CallScanner(TOOLS)
    single = [item for character in source for item in slow.feed(character)] + slow.finish(ended)
    assert merged(items) == merged(single)


@settings(FUZZ, max_examples=300)
@given(before=sources, after=sources)
def test_a_good_call_behind_prose_is_always_found(before: str, after: str) -> None:
    """Whatever stands before, a call that no open value can swallow is served."""
    scanner = CallScanner(TOOLS)
    prose = before.replace("<parameter=", "<par=").replace("{", "(")
    items = scanner.feed(prose + WHOLE + after) + scanner.finish(ended=True)
    assert [item for item in items if isinstance(item, Call) and item.arguments == '{"cmd": "ls"}']


@settings(FUZZ, max_examples=300)
@given(text=sources, cuts=st.lists(st.integers(0, 200), max_size=6))
def test_prose_only_is_let_go_but_for_what_may_open_a_call(text: str, cuts: list[int]) -> None:
    scanner = CallScanner(TOOLS)
    prose = text.replace("<tool_call>", "[t]").replace("<function=", "[f]")
    out = "".join(source_of(item) for item in scanner.feed(prose))
    assert out + scanner.held == prose
    assert scanner.held in ("", "<")


@settings(FUZZ, max_examples=300)
@given(
    text=st.text("abc", max_size=12),
    stops=st.lists(st.text("abc", min_size=1, max_size=4), max_size=3),
    cuts=st.lists(st.integers(0, 12), max_size=4),
)
def test_stop_matcher_equals_a_search_of_the_whole_text(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    ends = [(text.index(stop) + len(stop), text.index(stop)) for stop in stops if stop in text]
    matcher, borders = StopMatcher(stops), sorted({0, *cuts, len(text)})
    out = "".join(matcher.feed(text[a:b]) for a, b in pairwise(borders))
    assert out + matcher.flush() == (text[: min(ends)[1]] if ends else text)
    assert matcher.hit == bool(ends)


@pytest.mark.parametrize("name", ["", "a<b", "a b", "a\nb", "a>b"])
def test_odd_tool_names_break_nothing(name: str) -> None:
    scanner = CallScanner({name: {}})
    source = f"<tool_call>\n<function={name}>\n</function>\n</tool_call>"
    items = scanner.feed(source) + scanner.finish(ended=True)
    assert "".join(map(source_of, items)) == source
