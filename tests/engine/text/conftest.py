"""Fixtures of the text tests: one trained tokenizer and its model directory a session."""

import json
import shutil
from pathlib import Path

import pytest
from textkit import TEMPLATE, Speaker, train_tokenizer

from engine.text.model import TextModel


@pytest.fixture(scope="session")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("text-model")
    tokenizer = train_tokenizer()
    tokenizer.save(str(directory / "tokenizer.json"))
    shutil.copy(TEMPLATE, directory / "chat_template.jinja")
    ends = [tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("<|endoftext|>")]
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    return directory


@pytest.fixture(scope="session")
def model(model_directory: Path) -> TextModel:
    return TextModel.load(model_directory)


@pytest.fixture(scope="session")
def control(model: TextModel) -> dict[str, int]:
    return model.tokenizer.control_ids


@pytest.fixture(scope="session")
def speak(model: TextModel) -> Speaker:
    return Speaker(model)
