"""Loading a model directory, and refusing one."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.api import Message, Prompt
from engine.text.errors import TextFilesError
from engine.text.model import TextModel


@pytest.fixture
def directory(model_directory: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(model_directory, tmp_path / "model"))


def test_what_it_says_about_itself(model: TextModel) -> None:
    ids = model.tokenizer.control_ids
    assert model.stop_token_ids == tuple(sorted((ids["<|im_end|>"], ids["<|endoftext|>"])))
    assert model.vocab_limit == 1 + max(ids.values())
    prompt = Prompt((Message("user", "Hi."),))
    assert model.count(prompt) == len(model.render(prompt).token_ids)


def test_end_tokens_may_stand_in_config(directory: Path, model: TextModel) -> None:
    (directory / "generation_config.json").unlink()
    assert TextModel.load(directory).stop_token_ids == (model.markup.turn_end,)
    (directory / "config.json").write_text(json.dumps({"text_config": {"eos_token_id": 7}}))
    assert TextModel.load(directory).stop_token_ids == (7, model.markup.turn_end)
    nested = {"eos_token_id": 8, "generation_config": {"eos_token_id": [9]}}
    (directory / "config.json").write_text(json.dumps(nested))
    assert TextModel.load(directory).stop_token_ids == (9, model.markup.turn_end)


def test_tokenizer_id_follows_tokenizer_and_template(directory: Path, model: TextModel) -> None:
    assert TextModel.load(directory).tokenizer_id == model.tokenizer_id
    template = directory / "chat_template.jinja"
    source = template.read_text()
    template.write_text(source + "{# changed #}")
    assert TextModel.load(directory).tokenizer_id != model.tokenizer_id
    template.write_text(source)
    file = directory / "tokenizer.json"
    file.write_text(file.read_text() + "\n")
    assert TextModel.load(directory).tokenizer_id != model.tokenizer_id


def test_template_may_stand_in_tokenizer_config(directory: Path, model: TextModel) -> None:
    template = directory / "chat_template.jinja"
    config = {"chat_template": template.read_text()}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    template.unlink()
    assert TextModel.load(directory).tokenizer_id == model.tokenizer_id


def remove_turn_tokens(document: dict[str, Any]) -> None:
    document["added_tokens"] = [t for t in document["added_tokens"] if "im_" not in t["content"]]


def not_byte_level(document: dict[str, Any]) -> None:
    document["decoder"] = {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always"}


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (remove_turn_tokens, "im_start"),
        (not_byte_level, "byte-level"),
        (dict.clear, "tokenizer.json"),
    ],
)
def test_unusable_tokenizers_are_refused(
    directory: Path, damage: Callable[[dict[str, Any]], None], words: str
) -> None:
    file = directory / "tokenizer.json"
    document = json.loads(file.read_text())
    damage(document)
    file.write_text(json.dumps(document))
    with pytest.raises(TextFilesError, match=words):
        TextModel.load(directory)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("tokenizer.json", None, "no tokenizer.json"),
        ("tokenizer.json", b"{", "tokenizer.json"),
        ("tokenizer.json", b"\xff", "tokenizer.json"),
        ("chat_template.jinja", None, "no chat_template.jinja"),
        ("chat_template.jinja", b"{% if %}", "template can't be read"),
        ("generation_config.json", b"[]", "not a JSON object"),
        ("config.json", b"{", "not JSON"),
        ("generation_config.json", b'{"eos_token_id": "end"}', "eos_token_id is 'end'"),
        ("generation_config.json", b'{"eos_token_id": [1, true]}', "eos_token_id is"),
    ],
)
def test_missing_and_damaged_files_are_refused(
    directory: Path, name: str, content: bytes | None, words: str
) -> None:
    if content is None:
        (directory / name).unlink()
    else:
        (directory / name).write_bytes(content)
    with pytest.raises(TextFilesError, match=words):
        TextModel.load(directory)


def test_a_dictation_becomes_the_tokens_of_a_model_that_says_it(model: TextModel) -> None:
    ids = model.tokenizer.control_ids
    pieces = ("<think>\nso", b"\xf0\x9f", None, "</think> ok")
    tokens = model.dictated(pieces)
    assert tokens[0] == ids["<think>"]
    assert tokens[-1] in model.stop_token_ids
    fault = tokens.index(None)
    said = [token for token in tokens[:fault] if token is not None]
    assert b"".join(map(model.tokenizer.token_bytes, said)) == b"<think>\nso\xf0\x9f"
    assert [model.tokenizer.token_bytes(token) for token in said[-2:]] == [b"\xf0", b"\x9f"]
    assert tokens[fault + 1] == ids["</think>"]


def test_each_byte_has_a_token(model: TextModel) -> None:
    for byte in range(256):
        (token,) = model.tokenizer.byte_tokens(bytes([byte]))
        assert model.tokenizer.token_bytes(token) == bytes([byte])
