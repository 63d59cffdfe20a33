"""Tool calls in generated tokens: the forms in which models write them, and what only looks like one."""

import pytest
from outputkit import LS, TOOLS, run, xml
from textkit import Speaker

from engine.api import FinishReason, Message, Prompt
from engine.text.model import TextModel

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
