"""A border is a position that every longer prompt with the same first messages also has."""

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prompts import AWKWARD, TOOLS, messages, prompts
from textkit import FUZZ

from engine.api import Message, Prompt
from engine.text.model import TextModel

more = st.lists(messages, min_size=1, max_size=4).map(tuple)


@settings(FUZZ, max_examples=200)
@given(prompt=prompts, more=more)
def test_longer_prompts_keep_the_tokens_up_to_every_border(
    model: TextModel, prompt: Prompt, more: tuple[Message, ...]
) -> None:
    prompt = replace(prompt, preserve_thinking=True)
    short = model.render(prompt)
    long = model.render(replace(prompt, messages=prompt.messages + more))
    assert len(short.borders) == len(prompt.messages) + 1
    assert list(short.borders) == sorted(short.borders)
    for border in short.borders:
        assert short.token_ids[:border] == long.token_ids[:border]
    assert short.borders == long.borders[: len(short.borders)]


@settings(FUZZ, max_examples=100)
@given(prompt=prompts, more=more)
def test_dropped_reasoning_moves_no_border_before_the_first_turn_that_had_it(
    model: TextModel, prompt: Prompt, more: tuple[Message, ...]
) -> None:
    prompt = replace(prompt, preserve_thinking=False)
    roles = [message.role for message in prompt.messages]
    steady = roles.index("assistant") if "assistant" in roles else len(roles)
    short = model.render(prompt)
    long = model.render(replace(prompt, messages=prompt.messages + more))
    border = short.borders[steady]
    assert short.token_ids[:border] == long.token_ids[:border]


@settings(FUZZ, max_examples=100)
@given(prompt=prompts)
def test_last_border_lies_before_the_generation_opener(model: TextModel, prompt: Prompt) -> None:
    rendered = model.render(prompt)
    behind = model.tokenizer.decode(rendered.token_ids[rendered.borders[-1] :])
    opener = "<|im_start|>assistant\n" + model.tokenizer.decode(rendered.opener)
    ends_in_result = prompt.messages and prompt.messages[-1].role == "tool"
    if prompt.messages:
        assert behind == ("<|im_end|>\n" if ends_in_result else "") + opener
    else:
        assert behind.endswith(opener)


def test_first_border_lies_behind_the_tools_whatever_the_system_text(model: TextModel) -> None:
    shared = model.render(Prompt((), tools=TOOLS))
    border = shared.borders[0]
    assert model.tokenizer.decode(shared.token_ids[:border]).endswith("</IMPORTANT")
    for text in AWKWARD:
        other = model.render(Prompt((Message("system", text + " tail"),), tools=TOOLS))
        assert other.borders[0] == border
        assert other.token_ids[:border] == shared.token_ids[:border]


@pytest.mark.parametrize("text", ["", "Be brief."])
def test_without_tools_and_effort_the_first_border_is_the_start(
    model: TextModel, text: str
) -> None:
    assert model.render(Prompt((Message("system", text),), effort="medium")).borders[0] == 0


def test_every_tool_result_of_a_turn_has_a_border_of_its_own(model: TextModel) -> None:
    prompt = Prompt((Message("user", "go"), *(Message("tool", f"r{n}") for n in range(3))))
    rendered = model.render(prompt)
    spans = zip(rendered.borders[1:], rendered.borders[2:], strict=False)
    shown = [model.tokenizer.decode(rendered.token_ids[a:b]) for a, b in spans]
    assert shown == [
        "<|im_start|>user\n<tool_response>\nr0\n</tool_response>",
        "\n<tool_response>\nr1\n</tool_response>",
        "\n<tool_response>\nr2\n</tool_response>",
    ]


texts = st.lists(st.sampled_from(AWKWARD) | st.text(max_size=3), max_size=8).map("".join)


@settings(FUZZ, max_examples=600)
@given(text=texts, appended=texts)
@example(text="z >\n", appended="\n")
@example(text="x\n  ", appended="\ny")
@example(text="x\n ", appended="\n\n")
def test_stable_prefix_survives_anything_appended(
    model: TextModel, text: str, appended: str
) -> None:
    settled = model.tokenizer.stable_prefix(text)
    alone, longer = model.tokenizer.encode(text), model.tokenizer.encode(text + appended)
    assert alone[:settled] == longer[:settled]
