"""Hypothesis strategies for prompts: every role, parallel calls, consecutive results, text that is hard to tokenise."""

import json

from hypothesis import strategies as st

from engine.api import Message, Prompt, ToolCall, ToolSpec

AWKWARD = [
    "", " ", "\n", "\n\n", "  \n \n", "x", " x", "'", "'r", "re", "-", ">", ">\n\n", "é", "e\u0301", "\u0338", "\u0301", "한", "\u1112\u1161", "😀",
    "12", "</", "<|", "|>", "im_end", "{", '"', "\\", "\t", "\r\n", "\u3000", "# Title", "def f(x):\n    return x\n",
]  # fmt: skip

texts = st.lists(st.sampled_from(AWKWARD) | st.text(max_size=4), max_size=6).map("".join)
names = st.sampled_from(["find", "run", "write_file"])
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
arguments = st.dictionaries(st.sampled_from(["path", "limit", "a b"]), json_values, max_size=3).map(
    lambda value: json.dumps(value, ensure_ascii=False)
)
calls = st.builds(ToolCall, call_id=st.just("c"), name=names, arguments=arguments)

messages = st.one_of(
    st.builds(Message, role=st.just("user"), text=texts),
    st.builds(Message, role=st.sampled_from(["system", "developer"]), text=texts),
    st.builds(Message, role=st.just("tool"), text=texts, tool_call_id=st.just("c")),
    st.builds(
        Message,
        role=st.just("assistant"),
        text=texts,
        reasoning=st.none() | texts,
        tool_calls=st.lists(calls, max_size=2).map(tuple),
    ),
)

TOOLS = tuple(
    ToolSpec(name, description, {"type": "object", "properties": {"path": {"type": "string"}}})
    for name, description in [("find", "Finds <b>files</b> & é"), ("run", None), ("write_file", "")]
)

prompts = st.builds(
    Prompt,
    messages=st.lists(messages, max_size=6).map(tuple),
    tools=st.sampled_from([(), TOOLS[:1], TOOLS]),
    thinking=st.booleans(),
    effort=st.sampled_from([None, "xhigh", "medium", "low"]),
    preserve_thinking=st.booleans(),
)
