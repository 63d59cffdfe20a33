"""Generated tokens to pieces: channels, characters, stop strings, and all of it together."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from outputkit import LS, TOOLS, run, xml
from prompts import TOOLS as ANY_TOOLS
from prompts import arguments, texts
from textkit import FUZZ, HIDDEN, Speaker

from engine.api import FinishReason, Message, Prompt, ToolCall
from engine.text.model import TextModel


def test_reasoning_then_text(model: TextModel, speak: Speaker) -> None:
    tokens = speak.tokens("step\n\none\n</think>\n\nAnswer.\n")
    output = run(model, tokens, thinking=True)
    assert (output.reasoning, output.text) == ("step\n\none", "Answer.\n")
    closer = tokens.index(speak.tokens("</think>")[0])
    assert output.reasoning_tokens == closer + 1
    assert sum(piece.tokens for piece in output.pieces) == len(tokens)


@pytest.mark.parametrize("thinking", [True, False])
def test_a_block_the_model_opens_itself(model: TextModel, speak: Speaker, thinking: bool) -> None:
    output = run(model, speak.tokens("<think>\nhm\n</think>\n\nYes."), thinking=thinking)
    assert (output.reasoning, output.text) == ("hm", "Yes.")


def test_a_stray_closer_at_the_start_is_swallowed(model: TextModel, speak: Speaker) -> None:
    assert run(model, speak.tokens("</think>\n\nYes.")).text == "Yes."


@pytest.mark.parametrize("text", ["a </think> b", "a <think> b", "see `</tool_response>`"])
def test_tags_in_the_answer_are_prose(model: TextModel, speak: Speaker, text: str) -> None:
    output = run(model, speak.tokens(text))
    assert (output.text, output.reasoning) == (text, "")


def test_a_spelled_closer_does_not_end_reasoning(model: TextModel, speak: Speaker) -> None:
    tokens = [*speak.tokens("say "), *speak.spelled("</think>"), *speak.tokens("\n</think>\n\nok")]
    output = run(model, tokens, thinking=True)
    assert (output.reasoning, output.text) == ("say </think>", "ok")


def test_reasoning_cut_off_is_never_text(model: TextModel, speak: Speaker) -> None:
    output = run(model, speak.tokens("step 1, "), thinking=True, reason=FinishReason.LENGTH)
    assert (output.reasoning, output.text) == ("step 1, ", "")


@pytest.mark.parametrize("token", HIDDEN)
def test_special_tokens_never_become_text(model: TextModel, speak: Speaker, token: str) -> None:
    output = run(model, speak.tokens(f"a{token}b"))
    assert output.text == "ab"


def test_characters_split_over_tokens(model: TextModel, speak: Speaker) -> None:
    prompt = Prompt((Message("user", "Smile."),), thinking=False)
    stream = model.open_stream(prompt)
    out = [stream.feed(token) for token in speak.bytes("hi😀€".encode())]
    assert ["".join(piece.text for piece in pieces) for pieces in out] == [
        "h", "i", "", "", "", "😀", "", "", "€",
    ]  # fmt: skip


@pytest.mark.parametrize("then", ["", "<|im_end|>"])
def test_half_a_character_at_the_end_is_no_text(
    model: TextModel, speak: Speaker, then: str
) -> None:
    tokens = [*speak.tokens("x"), *speak.bytes(b"\xf0\x9f"), *speak.tokens(then)]
    assert run(model, tokens).text == "x"


def test_half_a_character_before_a_control_token_is_no_text(
    model: TextModel, speak: Speaker
) -> None:
    tokens = [*speak.tokens("x"), *speak.bytes(b"\xf0\x9f"), *speak.tokens("<|im_start|>y")]
    assert run(model, tokens).text == "xy"


def test_bytes_that_are_no_text_are_marked(model: TextModel, speak: Speaker) -> None:
    assert run(model, [*speak.bytes(b"a\xff\xc3"), *speak.tokens("b")]).text == "a\ufffd\ufffdb"


@pytest.mark.parametrize(
    ("source", "stop", "text", "stopped"),
    [
        ("one two three", ["two"], "one ", True),
        ("one two three", ["twi"], "one two three", False),
        ("one tw", ["two"], "one tw", False),
        ("abcd", ["abcd", "bc"], "a", True),
        ("line\nnext", ["\n"], "line", True),
        ("\n\nline", ["\n"], "line", False),
        ("a\n\nUser: b", ["\n\nUser:"], "a", True),
        ("x", [""], "x", False),
        ("😀 ok", ["😀"], "", True),
    ],
)
@pytest.mark.parametrize("how", ["tokens", "bytes"])
def test_stop_strings(
    model: TextModel,
    speak: Speaker,
    source: str,
    stop: list[str],
    text: str,
    stopped: bool,
    how: str,
) -> None:
    tokens = speak.tokens(source) if how == "tokens" else speak.bytes(source.encode())
    output = run(model, tokens, stop=stop)
    assert (output.text, output.stopped) == (text, stopped)


def test_stop_strings_count_in_text_only(model: TextModel, speak: Speaker) -> None:
    source = f"a STOP b\n</think>\n\nso\n\n{xml('run', cmd='STOP')}\nthen STOP here"
    output = run(model, speak.tokens(source), stop=["STOP"], thinking=True)
    assert (output.reasoning, output.text) == ("a STOP b", "sothen ")
    assert (output.calls, output.stopped) == ([("run", {"cmd": "STOP"})], True)


def test_text_is_not_delayed(model: TextModel, speak: Speaker) -> None:
    stream = model.open_stream(Prompt((Message("user", "Go."),), tools=TOOLS, thinking=False))
    for character in "a < b, <b> and <tool_box> or <func":
        pieces = stream.feed(speak.bytes(character.encode())[0])
        may_open = character == "<"
        shown = "".join(piece.text for piece in pieces)
        assert may_open or character in shown or character in "tool_func"


fragments = st.sampled_from(
    ["<tool_call>", "</tool_call>", "<function=run>", "<function=find>", "<function=", "</function>", "<parameter=cmd>", "<parameter=pattern>",
     "</parameter>", "\n", " ", "ls", "{", '{"name": "run", "arguments": {}}', '{"name": "', "}", "<", "é", LS, "<think>", "</think>"]
)  # fmt: skip


@settings(FUZZ, max_examples=400)
@given(
    source=st.lists(fragments, max_size=14).map("".join),
    thinking=st.booleans(),
    stop=st.sampled_from([[], ["ls"], ["l", "\n<"]]),
    reason=st.sampled_from([FinishReason.STOP, FinishReason.LENGTH]),
)
def test_token_borders_do_not_matter(
    model: TextModel,
    speak: Speaker,
    source: str,
    thinking: bool,
    stop: list[str],
    reason: FinishReason,
) -> None:
    coarse = run(model, speak.spelled(source), thinking=thinking, stop=stop, reason=reason)
    fine = run(model, speak.bytes(source.encode()), thinking=thinking, stop=stop, reason=reason)
    for part in ("reasoning", "text", "calls", "stopped"):
        assert getattr(coarse, part) == getattr(fine, part)


@settings(FUZZ, max_examples=150)
@given(
    text=texts,
    reasoning=texts,
    calls=st.lists(st.tuples(st.sampled_from(["find", "run"]), arguments), max_size=2),
)
def test_what_the_template_writes_is_read_back(
    model: TextModel, speak: Speaker, text: str, reasoning: str, calls: list[tuple[str, str]]
) -> None:
    """An answer in the template's own form, generated, read and rendered again gives the same tokens."""
    user = Message("user", "Go.")
    answer = Message(
        "assistant",
        text,
        reasoning=reasoning,
        tool_calls=tuple(ToolCall("c", name, value) for name, value in calls),
    )
    first = model.render(Prompt((user, answer), tools=ANY_TOOLS))
    start = first.borders[1] + 1 + len(model.markup.assistant)
    turn = first.token_ids[start : first.borders[2]]
    output = run(model, turn[:-1], thinking=True, tools=ANY_TOOLS)
    again = Message(
        "assistant",
        output.text,
        reasoning=output.reasoning,
        tool_calls=tuple(ToolCall("c", name, json.dumps(value)) for name, value in output.calls),
    )
    assert model.render(Prompt((user, again), tools=ANY_TOOLS)) == first
