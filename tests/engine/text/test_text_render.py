"""Rendering against transformers' own template engine and tokenizer, which share no code with ours."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from prompts import TOOLS, prompts
from textkit import FUZZ
from transformers import PreTrainedTokenizerFast

from engine.api import Message, Prompt, ToolCall, ToolSpec
from engine.text.chat_template import ChatTemplate
from engine.text.errors import PromptError
from engine.text.model import TextModel

EFFORT = "Reasoning effort is set to low. Keep your thinking brief and focused, moving directly to the conclusion without unnecessary elaboration."


@pytest.fixture(scope="module")
def published(model_directory: Path) -> PreTrainedTokenizerFast:
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(model_directory / "tokenizer.json"))
    tokenizer.chat_template = (model_directory / "chat_template.jinja").read_text()
    return tokenizer


def as_published(message: Message) -> dict[str, Any]:
    calls = [
        {
            "type": "function",
            "function": {"name": call.name, "arguments": json.loads(call.arguments)},
        }
        for call in message.tool_calls
    ]
    fields: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.reasoning is not None:
        fields["reasoning_content"] = message.reasoning
    return {**fields, "tool_calls": calls} if calls else fields


def tool_as_published(tool: ToolSpec) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    present = {key: value for key, value in function.items() if value is not None}
    return {"type": "function", "function": present}


def published_text(published: PreTrainedTokenizerFast, prompt: Prompt) -> str:
    effort = {} if prompt.effort is None else {"reasoning_effort": prompt.effort}
    return published.apply_chat_template(
        [as_published(message) for message in prompt.messages],
        tools=[tool_as_published(tool) for tool in prompt.tools] or None,
        tokenize=False,
        add_generation_prompt=True,
        enable_thinking=prompt.thinking,
        preserve_thinking=prompt.preserve_thinking,
        **effort,
    )


@settings(FUZZ, max_examples=200)
@given(prompt=prompts.filter(lambda prompt: prompt.messages))
def test_tokens_equal_the_whole_text_tokenised_at_once(
    model: TextModel, published: PreTrainedTokenizerFast, prompt: Prompt
) -> None:
    text = published_text(published, prompt)
    expected = published(text, add_special_tokens=False)["input_ids"]
    assert list(model.render(prompt).token_ids) == expected


def text_of(model: TextModel, *messages: Message, **switches: Any) -> str:
    return model.tokenizer.decode(model.render(Prompt(messages, **switches)).token_ids)


USER = Message("user", "Hi.")


def test_head_is_effort_then_tools_then_system_text(model: TextModel) -> None:
    text = text_of(model, Message("developer", "Be brief."), USER, tools=TOOLS[:1], effort="low")
    effort, tools, system = (
        text.index(part) for part in (EFFORT, "# Tools", "Be brief.<|im_end|>")
    )
    assert text.startswith("<|im_start|>system\n" + EFFORT + "\n\n# Tools")
    assert effort < tools < system
    assert text.count("<|im_start|>system") == 1
    assert '"description": "Finds <b>files</b> & é"' in text


@pytest.mark.parametrize(
    ("switches", "head"),
    [
        ({"effort": "medium"}, ""),
        ({"thinking": False}, ""),
        ({"thinking": False, "effort": "low"}, ""),
        ({"effort": "low"}, f"<|im_start|>system\n{EFFORT}<|im_end|>\n"),
    ],
)
def test_effort_speaks_only_while_thinking(
    model: TextModel, switches: dict[str, Any], head: str
) -> None:
    assert text_of(model, USER, **switches).startswith(head + "<|im_start|>user\nHi.<|im_end|>\n")


def test_default_effort_is_xhigh(model: TextModel) -> None:
    assert text_of(model, USER) == text_of(model, USER, effort="xhigh")


@pytest.mark.parametrize(
    ("thinking", "opener"), [(True, "<think>\n"), (False, "<think>\n\n</think>\n\n")]
)
def test_opener(model: TextModel, thinking: bool, opener: str) -> None:
    prompt = Prompt((USER,), thinking=thinking)
    rendered = model.render(prompt)
    assert model.tokenizer.decode(rendered.opener) == opener
    assert rendered.opener == rendered.token_ids[-len(rendered.opener) :] == model.opener(prompt)


TOOL_LOOP = (
    Message("user", "one"),
    Message("assistant", "first", reasoning="old"),
    Message("user", "two"),
    Message("assistant", "", reasoning="new", tool_calls=(ToolCall("c", "run", "{}"),)),
    Message("tool", "result", tool_call_id="c"),
)


def test_reasoning_is_kept_everywhere(model: TextModel) -> None:
    text = text_of(model, *TOOL_LOOP)
    assert "<think>\nold\n</think>\n\nfirst<|im_end|>" in text
    assert "<think>\nnew\n</think>\n\n<tool_call>" in text


def test_reasoning_before_the_last_query_goes_if_asked(model: TextModel) -> None:
    text = text_of(model, *TOOL_LOOP, preserve_thinking=False)
    assert "<|im_start|>assistant\nfirst<|im_end|>" in text
    assert "<think>\nnew\n</think>\n\n<tool_call>" in text


def test_history_without_a_user_message_is_accepted(model: TextModel) -> None:
    text = text_of(model, Message("tool", "42"), effort="medium")
    assert text.startswith("<|im_start|>user\n<tool_response>\n42\n</tool_response><|im_end|>\n")


def test_later_system_message_is_a_turn_in_its_place(model: TextModel) -> None:
    text = text_of(model, USER, Message("developer", "Now in French."), effort="medium")
    assert "Hi.<|im_end|>\n<|im_start|>system\nNow in French.<|im_end|>\n<|im_start|>assist" in text


@pytest.mark.parametrize("arguments", ["{broken", "[1]", '"x"'])
def test_arguments_that_are_no_object_are_shown_as_they_are(
    model: TextModel, arguments: str
) -> None:
    call = ToolCall("c", "run", arguments)
    text = text_of(model, USER, Message("assistant", tool_calls=(call,)))
    shown = arguments.strip('"')
    assert f"<function=run>\n<parameter=arguments>\n{shown}\n</parameter>" in text


def test_empty_arguments_are_no_arguments(model: TextModel) -> None:
    text = text_of(model, USER, Message("assistant", tool_calls=(ToolCall("c", "run", ""),)))
    assert "<function=run>\n</function>" in text


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        (Prompt((USER,), effort="extreme"), "xhigh, medium or low"),
        (Prompt((Message("narrator", "x"),)), "narrator"),
    ],
)
def test_refusals_say_why(model: TextModel, prompt: Prompt, words: str) -> None:
    with pytest.raises(PromptError, match=words):
        model.render(prompt)


def test_template_environment_is_the_published_one() -> None:
    source = "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m | tojson }}{% endfor %}"
    now = datetime(2026, 11, 30, tzinfo=UTC)
    template = ChatTemplate(source + "{{ strftime_now('%d %b %Y') }}", lambda: now)
    text = template.render([{"a": "<é>"}, {"b": 1}], [], True, None, True)
    assert text == '{"a": "<é>"}30 Nov 2026'


def test_template_that_reaches_into_python_is_refused() -> None:
    template = ChatTemplate("{{ messages.__class__.__mro__ }}{{ messages.append(1) }}")
    with pytest.raises(PromptError):
        template.render([], [], True, None, True)


def test_long_head_is_tokenised_once(model: TextModel, monkeypatch: pytest.MonkeyPatch) -> None:
    head = Message("system", "A long head. " * 5000)
    model.render(Prompt((head, USER)))
    seen: list[int] = []
    plain = model.tokenizer._plain

    class Counting:
        def encode_batch_fast(self, texts: list[str], add_special_tokens: bool) -> Any:
            seen.extend(map(len, texts))
            return plain.encode_batch_fast(texts, add_special_tokens=add_special_tokens)

    monkeypatch.setattr(model.tokenizer, "_plain", Counting())
    model.render(
        Prompt((head, USER, Message("assistant", "Yes."), Message("user", "Again, please.")))
    )
    assert seen
    assert max(seen) < 200
