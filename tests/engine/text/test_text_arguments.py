"""Argument texts to JSON by schema."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textkit import FUZZ

from engine.text.arguments import argument_json

MANY = "9" * 5000


@pytest.mark.parametrize(
    ("text", "schema", "expected"),
    [
        ("12", {"type": "string"}, '"12"'),
        (" true\n", {"type": "string"}, '" true\\n"'),
        ("null", {"type": "string"}, '"null"'),
        ('"quoted"', {"type": "string"}, '"\\"quoted\\""'),
        ("é", {"type": "string"}, '"é"'),
        ("12", {"type": "integer"}, "12"),
        ("75.0", {"type": "integer"}, "75"),
        ("1e2", {"type": "integer"}, "100"),
        ("75.5", {"type": "integer"}, '"75.5"'),
        ("007", {"type": "integer"}, '"007"'),
        ("1e999999999", {"type": "integer"}, '"1e999999999"'),
        (MANY, {"type": "integer"}, f'"{MANY}"'),
        ("2026-01-02", {"type": "integer"}, '"2026-01-02"'),
        ("1.10", {"type": "number"}, "1.10"),
        ("NaN", {"type": "number"}, '"NaN"'),
        ("True", {"type": "boolean"}, "true"),
        ("yes", {"type": "boolean"}, '"yes"'),
        ("None", {"type": "null"}, "null"),
        ('{"a": [1]}', {"type": "object"}, '{"a": [1]}'),
        ("[1,\n 2]", {"type": "array"}, "[1,\n 2]"),
        ("[NaN]", {"type": "array"}, '"[NaN]"'),
        ('{"a": 1}', {"type": "array"}, '"{\\"a\\": 1}"'),
        ("{'a': 1}", {"type": "object"}, "\"{'a': 1}\""),
        ("[" * 100_000, {"type": "array"}, json.dumps("[" * 100_000)),
        ("null", {"type": ["string", "null"]}, "null"),
        ("5", {"type": ["string", "integer"]}, '"5"'),
        ("5", {"type": ["integer", "string"]}, "5"),
        ("null", {"type": "integer", "nullable": True}, "null"),
        ("5", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "5"),
        ("[5]", {"oneOf": [{"type": "integer"}, {"type": "array"}]}, "[5]"),
        ("5", {"enum": ["5", "6"]}, '"5"'),
        ("5", {"enum": [5, 6]}, "5"),
        ("true", {"const": True}, "true"),
        ("5", {"$ref": "#/$defs/Count"}, "5"),
        ("5", {"$ref": "#/$defs/Loop"}, "5"),
        ("5", {"$ref": "elsewhere.json"}, "5"),
        ("5", {}, "5"),
        ("word", {}, '"word"'),
        ('"word"', {}, '"\\"word\\""'),
        ("{}", True, "{}"),
        ("x", {"type": "invented"}, '"x"'),
    ],
)
def test_values(text: str, schema: object, expected: str) -> None:
    root = {
        "properties": {"it": schema},
        "$defs": {"Count": {"type": "integer"}, "Loop": {"$ref": "#/$defs/Loop"}},
    }
    assert argument_json(text, "it", root) == expected


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        ({}, "5"),
        ({"properties": {"other": {}}}, "5"),
        ({"properties": None, "additionalProperties": False}, "5"),
        ({"additionalProperties": {"type": "string"}}, '"5"'),
    ],
)
def test_arguments_the_schema_does_not_name(root: dict[str, object], expected: str) -> None:
    assert argument_json("5", "it", root) == expected


kinds = st.sampled_from(
    ["string", "integer", "number", "boolean", "null", "object", "array", "odd"]
)


@settings(FUZZ, max_examples=100)
@given(text=st.text(), kind=kinds | st.lists(kinds))
def test_it_is_always_json_and_a_string_keeps_the_text(text: str, kind: object) -> None:
    value = json.loads(argument_json(text, "it", {"properties": {"it": {"type": kind}}}))
    if isinstance(value, str):
        assert value == text


words = st.text(max_size=6)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner | words, max_size=3)
    | st.dictionaries(words, inner | words, max_size=3),
    max_leaves=6,
)


@settings(FUZZ, max_examples=100)
@given(value=json_values)
def test_what_the_template_writes_for_a_value_is_that_value(value: object) -> None:
    assert json.loads(argument_json(json.dumps(value, ensure_ascii=False), "it", {})) == value
