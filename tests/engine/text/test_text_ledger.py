"""Replay of turns the engine produced: the next prompt starts with exactly the tokens the engine holds."""

import struct
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prompts import TOOLS
from textkit import FUZZ, Speaker

from engine.api import FinishReason, LedgerEntry, Message, Prompt, ToolCall
from engine.text.errors import PromptError
from engine.text.model import TextModel

USER = Message("user", "Count the files.")
NEXT = Message("user", "And now?")


def entry_of(
    model: TextModel, prompt: Prompt, generated: list[int], reason: FinishReason = FinishReason.STOP
) -> LedgerEntry:
    stream = model.open_stream(prompt)
    for token in generated:
        stream.feed(token)
    stream.finish(reason)
    return stream.ledger_entry(model.opener(prompt), generated)


def text_of(model: TextModel, entry: LedgerEntry) -> str:
    return model.tokenizer.decode(struct.unpack(f"<{len(entry.tokens) // 4}I", entry.tokens))


def content_of(model: TextModel, entry: LedgerEntry) -> str:
    return text_of(model, replace(entry, tokens=entry.tokens[4 * entry.content_offset :]))


@settings(FUZZ, max_examples=150)
@given(data=st.data(), thinking=st.booleans(), finished=st.booleans())
def test_next_prompt_extends_prompt_and_generated_tokens(
    model: TextModel, data: st.DataObject, thinking: bool, finished: bool
) -> None:
    ordinary = st.integers(0, model.vocab_limit - 1).filter(lambda n: n not in model.stop_token_ids)
    generated = data.draw(st.lists(ordinary, max_size=20))
    end = [model.markup.turn_end] if finished else []
    prompt = Prompt((USER,), thinking=thinking)
    held = [*model.render(prompt).token_ids, *generated]
    reason = FinishReason.STOP if finished else FinishReason.LENGTH
    entry = entry_of(model, prompt, [*generated, *end], reason)
    answer = Message("assistant", "what the client made of it", ledger=entry)
    following = model.render(replace(prompt, messages=(USER, answer, NEXT)))
    assert list(following.token_ids[: len(held)]) == held
    behind = model.tokenizer.decode(
        following.token_ids[following.borders[1] : following.borders[2]]
    )
    assert behind.endswith("<|im_end|>\n")
    assert following.borders[2] >= len(held)


def test_thinking_off_replays_the_empty_block(model: TextModel, speak: Speaker) -> None:
    prompt = Prompt((USER,), thinking=False)
    entry = entry_of(model, prompt, speak.tokens("Two.<|im_end|>"))
    assert text_of(model, entry) == "<think>\n\n</think>\n\nTwo.<|im_end|>"
    assert content_of(model, entry) == "Two.<|im_end|>"


def test_retokenised_arguments_do_not_matter(model: TextModel, speak: Speaker) -> None:
    generated = speak.tokens("</think>\n\n<tool_call>\n<function=run>\n</function>\n</tool_call>")
    spelled = generated[:-1] + speak.spelled("</tool_call>") + speak.tokens("<|im_end|>")
    entry = entry_of(model, Prompt((USER,)), spelled)
    calls = (ToolCall("c", "run", '{ "other" : "spelling" }'),)
    answer = Message("assistant", tool_calls=calls, ledger=entry)
    rendered = model.render(Prompt((USER, answer, Message("tool", "ok", tool_call_id="c"))))
    turn = rendered.token_ids[rendered.borders[1] : rendered.borders[2]]
    header = (model.markup.turn_start, *model.markup.assistant, *model.opener(Prompt((USER,))))
    assert turn == (*header, *spelled, *speak.tokens("\n"))


@pytest.mark.parametrize(("preserve", "shown"), [(True, "<think>\nhm\n</think>\n\n"), (False, "")])
def test_reasoning_goes_where_the_template_drops_it(
    model: TextModel, speak: Speaker, preserve: bool, shown: str
) -> None:
    entry = entry_of(model, Prompt((USER,)), speak.tokens("hm\n</think>\n\nTwo.<|im_end|>"))
    answer = Message("assistant", "Two.", ledger=entry)
    text = decoded(model, Prompt((USER, answer, NEXT), preserve_thinking=preserve))
    assert f"<|im_start|>assistant\n{shown}Two.<|im_end|>\n" in text
    loop = decoded(model, Prompt((USER, answer), preserve_thinking=preserve))
    assert "<think>\nhm\n</think>\n\nTwo.<|im_end|>\n" in loop


def decoded(model: TextModel, prompt: Prompt) -> str:
    return model.tokenizer.decode(model.render(prompt).token_ids)


def test_foreign_entry_falls_back_to_the_template(model: TextModel, speak: Speaker) -> None:
    entry = entry_of(model, Prompt((USER,)), speak.tokens("</think>\n\nledger<|im_end|>"))
    foreign = replace(entry, tokenizer_id="another")
    messages = (USER, Message("assistant", "template", ledger=foreign))
    assert decoded(model, Prompt(messages)).count("template") == 1


def test_reasoning_cut_off_is_closed(model: TextModel, speak: Speaker) -> None:
    entry = entry_of(model, Prompt((USER,)), speak.tokens("so far"), FinishReason.LENGTH)
    assert text_of(model, entry) == "<think>\nso far\n</think>\n\n<|im_end|>"
    assert content_of(model, entry) == "<|im_end|>"


def test_text_cut_off_gets_its_end_token(model: TextModel, speak: Speaker) -> None:
    entry = entry_of(model, Prompt((USER,)), speak.tokens("a</think>\n\nb"), FinishReason.CANCELLED)
    assert text_of(model, entry) == "<think>\na</think>\n\nb<|im_end|>"


def test_another_end_token_is_replaced(model: TextModel, speak: Speaker) -> None:
    entry = entry_of(model, Prompt((USER,)), speak.tokens("</think>\n\nb<|endoftext|>"))
    assert text_of(model, entry) == "<think>\n</think>\n\nb<|im_end|>"


def test_call_served_from_open_reasoning_stays_when_reasoning_is_dropped(
    model: TextModel, speak: Speaker
) -> None:
    call = "<tool_call>\n<function=run>\n</function>\n</tool_call>"
    prompt = Prompt((USER,), tools=TOOLS)
    entry = entry_of(model, prompt, speak.tokens(f"drafting <tool_call> …\n{call}<|im_end|>"))
    assert content_of(model, entry) == call + "<|im_end|>"
    assert text_of(model, entry).endswith(f"…\n{call}<|im_end|>")


@pytest.mark.parametrize(
    "damage",
    [
        {"tokens": b""},
        {"tokens": b"\0\0\0"},
        {"tokens": b"\0\0\0\0"},
        {"tokens": b"\xff\xff\xff\xff" * 2},
        {"content_offset": -1},
        {"content_offset": 1000},
    ],
)
def test_damaged_entry_is_refused(
    model: TextModel, speak: Speaker, damage: dict[str, object]
) -> None:
    entry = entry_of(model, Prompt((USER,)), speak.tokens("a</think>\n\nb<|im_end|>"))
    broken = replace(entry, **damage)
    with pytest.raises(PromptError, match="ledger entry"):
        model.render(Prompt((USER, Message("assistant", ledger=broken))))
