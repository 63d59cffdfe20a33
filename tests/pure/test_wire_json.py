"""Bodies as bytes: what is refused, what is repaired, and that nothing of it is slow or crashes."""

import json
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer_proxy.errors import InvalidRequest, MalformedJson
from ninfer_proxy.http.wire_json import parse_json


def parse(body: bytes) -> object:
    return parse_json(body, max_depth=20, max_parts=1000)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"a": 1,}',
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": 1e999}',
        b'{"a": 01}',
        b"{'a': 1}",
        b'"\xff"',
        b'"\xf0\x9f\x98"',
        b'"\xed\xa0\x80"',
        b'"\\ud83d',
        b'{"a": "\\u12"}',
        b"nonsense \\ud800",
        b"[" * 100_000,
    ],
)
def test_what_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_json(body, max_depth=20, max_parts=1_000_000)
    assert isinstance(caught.value, MalformedJson)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (rb'"cut \ud83d"', "cut �"),
        (rb'"\ude00\ud83d\ude00\ud83d"', "�😀�"),
        (rb'"\\ud83d \"\uD83D\" \\\udbff"', '\\ud83d "�" \\�'),
        (rb'{"\udead": "\ud83d\ud83d\ude00"}', {"�": "�😀"}),
    ],
)
def test_half_surrogates_become_replacement_characters(body: bytes, value: object) -> None:
    assert parse(body) == value


def test_a_byte_order_mark_is_overlooked() -> None:
    assert parse(b"\xef\xbb\xbf[1]") == [1]


def test_of_two_equal_keys_the_last_counts() -> None:
    assert parse(b'{"a": 1, "a": 2}') == {"a": 2}


def test_depth_is_limited_exactly() -> None:
    assert parse(b"[" * 20 + b"]" * 20)
    with pytest.raises(InvalidRequest, match="20 levels"):
        parse(b"[" * 21 + b"]" * 21)


def test_parts_are_limited_before_parsing() -> None:
    assert parse(b"[" + b"1," * 900 + b"1]")
    with pytest.raises(InvalidRequest, match="1,000 JSON values"):
        parse(b"[" + b"{}," * 1000 + b"1]")


def test_a_long_text_costs_little_more_than_parsing_it() -> None:
    body = json.dumps({"input": "word " * 1_000_000 + "\ud83d"}).encode()
    plain = json.dumps({"input": "word " * 1_000_000}).encode()
    repaired_s, plain_s = (min(_seconds(one) for _ in range(3)) for one in (body, plain))
    assert repaired_s < 50 * plain_s + 0.05


def _seconds(body: bytes) -> float:
    start = time.perf_counter()
    parse_json(body, max_depth=20, max_parts=10)
    return time.perf_counter() - start


SURROGATES = st.text(st.characters(exclude_categories=()))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | SURROGATES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(SURROGATES, inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_any_value_comes_through_with_only_half_surrogates_replaced(value: object) -> None:
    text = json.dumps(value)
    expected = json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    assert parse(text.encode()) == _clean(expected)


def _clean(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    return value


@given(st.binary(max_size=200))
def test_any_bytes_give_a_value_or_a_typed_error(body: bytes) -> None:
    with suppress(InvalidRequest):
        parse(body)
