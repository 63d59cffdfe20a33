"""Generated tokens to pieces: channels, characters, stop strings, tool calls."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prompts import TOOLS as ANY_TOOLS
from prompts import arguments, texts
from textkit import FUZZ, HIDDEN, Speaker

from engine.api import DeltaKind, FinishReason, Message, Prompt, ToolCall, ToolSpec
from engine.text.channels import Piece
from engine.text.model import TextModel

STRING = {"type": "string"}


def tool(name: str, required: Sequence[str] = (), **properties: object) -> ToolSpec:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return ToolSpec(name, None, schema)


TOOLS = (
    tool("read_file", ["path"], path=STRING, limit={"type": "integer"}),
    tool("write_file", ["path", "content"], path=STRING, content=STRING),
    tool("run", ["cmd"], cmd=STRING, background={"type": "boolean"}),
    tool(
        "find",
        ["pattern"],
        pattern=STRING,
        kinds={"type": "array", "items": STRING},
        opts={"type": "object"},
    ),
)


@dataclass
class Output:
    reasoning: str
    text: str
    calls: list[tuple[str, object]]
    pieces: list[Piece]
    stopped: bool
    reasoning_tokens: int


def run(
    model: TextModel,
    tokens: Sequence[int],
    *,
    thinking: bool = False,
    stop: Sequence[str] = (),
    reason: FinishReason = FinishReason.STOP,
    tools: tuple[ToolSpec, ...] = TOOLS,
    allow_tools: bool = True,
) -> Output:
    prompt = Prompt((Message("user", "Go."),), tools=tools, thinking=thinking)
    stream = model.open_stream(prompt, stop, allow_tools)
    pieces = [piece for token in tokens for piece in stream.feed(token)]
    pieces += stream.finish(reason)

    def joined(kind: DeltaKind) -> str:
        return "".join(piece.text for piece in pieces if piece.kind == kind)

    calls = [(piece.call[0], json.loads(piece.call[1])) for piece in pieces if piece.call]
    text, reasoning = joined(DeltaKind.TEXT), joined(DeltaKind.REASONING)
    return Output(reasoning, text, calls, pieces, stream.stopped, stream.reasoning_tokens)


def xml(name: str, **values: str) -> str:
    given = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<tool_call>\n<function={name}>\n{given}</function>\n</tool_call>"


LS = xml("run", cmd="ls")

CALLS = {
    "plain": (LS, "", [("run", {"cmd": "ls"})]),
    "two after text": (
        f"I look.\n\n{LS}\n{xml('find', pattern='*')}\n",
        "I look.",
        [("run", {"cmd": "ls"}), ("find", {"pattern": "*"})],
    ),
    "opening tag missing": (
        "I will look.\n\n<function=find>\n<parameter=pattern>\n*.toml\n</parameter>\n</function>\n</tool_call>",
        "I will look.",
        [("find", {"pattern": "*.toml"})],
    ),
    "bare function, then text": (
        "<function=find>\n<parameter=pattern>\na\n</parameter>\n</function>\nThere.",
        "There.",
        [("find", {"pattern": "a"})],
    ),
    "parameter closers missing": (
        "<tool_call>\n<function=write_file>\n<parameter=path>\na.xml\n<parameter=content>\n<a>1 & 2 < 3</a>\n</function>\n</tool_call>",
        "",
        [("write_file", {"path": "a.xml", "content": "<a>1 & 2 < 3</a>"})],
    ),
    "one parameter closer missing": (
        "<tool_call>\n<function=write_file>\n<parameter=path>\na\n<parameter=content>\nb\n</parameter>\n</function>\n</tool_call>",
        "",
        [("write_file", {"path": "a", "content": "b"})],
    ),
    "closers inside a value": (
        xml(
            "write_file",
            path="doc.md",
            content="First </parameter> then </tool_call> stay.\n</function>\nEnd.",
        ),
        "",
        [
            (
                "write_file",
                {
                    "path": "doc.md",
                    "content": "First </parameter> then </tool_call> stay.\n</function>\nEnd.",
                },
            )
        ],
    ),
    "both inner closers inside a value": (
        xml("run", cmd="a\n</parameter>\n</function>\nb"),
        "",
        [("run", {"cmd": "a\n</parameter>\n</function>\nb"})],
    ),
    "a whole call inside a value": (
        xml("write_file", path="doc.md", content=f"Write:\n{LS}\nso."),
        "",
        [("write_file", {"path": "doc.md", "content": f"Write:\n{LS}\nso."})],
    ),
    "a parameter of the same name inside a value": (
        xml("run", cmd="echo </parameter>\n<parameter=cmd>\nx"),
        "",
        [("run", {"cmd": "echo </parameter>\n<parameter=cmd>\nx"})],
    ),
    "values on one line": (
        "<tool_call><function=run><parameter=cmd>ls -l</parameter></function></tool_call>",
        "",
        [("run", {"cmd": "ls -l"})],
    ),
    "no parameters": (
        "<tool_call>\n<function=run>\n</function>\n</tool_call>",
        "",
        [("run", {})],
    ),
    "two functions in one pair of tags": (
        "<tool_call>\n<function=run>\n<parameter=cmd>\na\n</parameter>\n</function>\n<function=run>\n<parameter=cmd>\nb\n</parameter>\n</function>\n</tool_call>",
        "",
        [("run", {"cmd": "a"}), ("run", {"cmd": "b"})],
    ),
    "function closer missing at the end": (
        "<tool_call>\n<function=run>\n<parameter=cmd>\nls\n</parameter>\n</tool_call>",
        "",
        [("run", {"cmd": "ls"})],
    ),
    "both closers missing at the end": (
        "<tool_call>\n<function=run>\n<parameter=cmd>\nls\n</tool_call>",
        "",
        [("run", {"cmd": "ls"})],
    ),
    "call closer missing at the end": (
        LS.removesuffix("\n</tool_call>"),
        "",
        [("run", {"cmd": "ls"})],
    ),
    "call closer missing between calls": (
        LS.removesuffix("</tool_call>") + LS,
        "",
        [("run", {"cmd": "ls"})] * 2,
    ),
    "closers missing, then a good call": (
        f"<tool_call>\n<function=run>\n<parameter=cmd>\nmake\n</function>\n</tool_call>\n{LS}",
        "",
        [("run", {"cmd": "make"}), ("run", {"cmd": "ls"})],
    ),
    "abandoned, then a good call": (
        f"<tool_call>\n<function=write_file>\n<parameter=path>\na\n{LS}",
        "<tool_call>\n<function=write_file>\n<parameter=path>\na",
        [("run", {"cmd": "ls"})],
    ),
    "unknown name": (xml("rm", path="/"), xml("rm", path="/"), []),
    "unknown name, then a good call": (
        f"{xml('rm', path='/')}\n{LS}",
        xml("rm", path="/"),
        [("run", {"cmd": "ls"})],
    ),
    "name that only begins like a tool's": (xml("ru", cmd="x"), xml("ru", cmd="x"), []),
    "never closed": (
        "<tool_call>\n<function=run>\n<parameter=cmd>\nls",
        "<tool_call>\n<function=run>\n<parameter=cmd>\nls",
        [],
    ),
    "prose about the tags": (
        "Write `<tool_call>` first:\n```\n<tool_call>\n<function=NAME>\n```\nand then `</tool_call>`.",
        "Write `<tool_call>` first:\n```\n<tool_call>\n<function=NAME>\n```\nand then `</tool_call>`.",
        [],
    ),
    "prose about a known function": (
        "Use `<function=run>` or <function=run> so; a < b <f",
        "Use `<function=run>` or <function=run> so; a < b <f",
        [],
    ),
    "JSON form": (
        'So:\n<tool_call>\n{"name": "run", "arguments": {"cmd": "echo </tool_call>"}}\n</tool_call>',
        "So:",
        [("run", {"cmd": "echo </tool_call>"})],
    ),
    "JSON form, arguments as text": (
        '<tool_call>{"name": "run", "arguments": "{\\"cmd\\": \\"ls\\"}"}</tool_call>',
        "",
        [("run", {"cmd": "ls"})],
    ),
    "JSON form, not closed at the end": (
        '<tool_call>\n{"name": "run", "arguments": {"cmd": "é\n"}}',
        "",
        [("run", {"cmd": "é\n"})],
    ),
    "JSON form broken, then a good call": (
        f'<tool_call>\n{{"name": "run", "arguments": {{cmd}}}}\n</tool_call>\n{LS}',
        '<tool_call>\n{"name": "run", "arguments": {cmd}}\n</tool_call>',
        [("run", {"cmd": "ls"})],
    ),
    "JSON form, unknown name": (
        '<tool_call>\n{"name": "rm", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "rm", "arguments": {}}\n</tool_call>',
        [],
    ),
    "typed values": (
        xml("read_file", path="12", limit="75.0")
        + xml("run", cmd="true", background="True")
        + xml("find", pattern="007", kinds='["file"]', opts='{"d": 1}'),
        "",
        [
            ("read_file", {"path": "12", "limit": 75}),
            ("run", {"cmd": "true", "background": True}),
            ("find", {"pattern": "007", "kinds": ["file"], "opts": {"d": 1}}),
        ],
    ),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("how", ["tokens", "spelled", "bytes"])
def test_calls(model: TextModel, speak: Speaker, name: str, how: str) -> None:
    source, text, calls = CALLS[name]
    tokens = {
        "tokens": speak.tokens,
        "spelled": speak.spelled,
        "bytes": lambda source: speak.bytes(source.encode()),
    }[how](source)
    output = run(model, tokens)
    assert (output.text.strip(), output.calls) == (text, calls)


def test_a_call_comes_out_with_the_token_that_closes_it(model: TextModel, speak: Speaker) -> None:
    prompt = Prompt((Message("user", "Go."),), tools=TOOLS, thinking=False)
    stream = model.open_stream(prompt)
    *before, closer = speak.tokens(LS)
    assert not [piece for token in before for piece in stream.feed(token)]
    (piece,) = stream.feed(closer)
    assert piece.call == ("run", '{"cmd": "ls"}')
    assert piece.tokens == len(before) + 1


@pytest.mark.parametrize("reason", [FinishReason.LENGTH, FinishReason.CANCELLED])
@pytest.mark.parametrize(
    "source",
    [LS.removesuffix("\n</tool_call>"), LS.removesuffix("</parameter>\n</function>\n</tool_call>")],
)
def test_a_call_a_limit_cut_off_is_text(
    model: TextModel, speak: Speaker, source: str, reason: FinishReason
) -> None:
    output = run(model, speak.tokens(source), reason=reason)
    assert (output.text, output.calls) == (source, [])


@pytest.mark.parametrize("switches", [{"allow_tools": False}, {"tools": ()}])
def test_without_tools_a_call_is_text(
    model: TextModel, speak: Speaker, switches: dict[str, object]
) -> None:
    output = run(model, speak.tokens(f"So.\n\n{LS}"), **switches)
    assert (output.text, output.calls) == (f"So.\n\n{LS}", [])


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


def test_call_in_reasoning_that_never_closes_is_served(model: TextModel, speak: Speaker) -> None:
    output = run(model, speak.tokens(f"I should read it.\n{LS}\n{LS}"), thinking=True)
    assert output.reasoning == "I should read it."
    assert output.calls == [("run", {"cmd": "ls"})] * 2


@pytest.mark.parametrize("tail", ["\n</think>\n\nDone.", "\nor not"])
def test_draft_in_reasoning_is_no_call(model: TextModel, speak: Speaker, tail: str) -> None:
    output = run(model, speak.tokens(f"Maybe\n{LS}{tail}"), thinking=True)
    assert output.calls == []
    assert output.reasoning.startswith(f"Maybe\n{LS}")
    assert output.text == ("Done." if "think" in tail else "")


def test_call_in_reasoning_cut_off_is_reasoning(model: TextModel, speak: Speaker) -> None:
    output = run(model, speak.tokens(f"Maybe\n{LS}"), thinking=True, reason=FinishReason.LENGTH)
    assert (output.calls, output.reasoning) == ([], f"Maybe\n{LS}")


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
