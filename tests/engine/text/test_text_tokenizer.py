"""The tokenizer under several threads."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.text import tokenizer as tokenizer_module
from engine.text.model import TextModel


def words(count: int, seed: int = 0) -> str:
    draw = random.Random(seed)
    return " ".join("".join(draw.choices("etaoinsrhld", k=7)) for _ in range(count))


def test_other_threads_run_while_a_long_text_is_encoded(model: TextModel) -> None:
    """A decode step must not wait for somebody's prompt: the library is to let go of the interpreter's lock."""
    ticks: list[float] = []
    done = threading.Event()

    def tick() -> None:
        while not done.wait(0.001):
            ticks.append(time.perf_counter())

    text = words(60_000)
    other = threading.Thread(target=tick)
    other.start()
    begun = time.perf_counter()
    model.tokenizer.encode(text)
    took = time.perf_counter() - begun
    done.set()
    other.join()
    assert [at for at in ticks if 0.2 * took < at - begun < 0.6 * took]


def test_threads_share_what_is_remembered(
    model: TextModel, model_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each gets its own text's tokens, and the account of what is kept stays right while old texts are forgotten."""
    texts = [words(40, seed) for seed in range(30)]
    expected = {text: model.tokenizer.encode(text) for text in texts}
    monkeypatch.setattr(tokenizer_module, "CACHED_CHARS", 5 * len(texts[0]))
    shared = TextModel.load(model_directory).tokenizer
    orders = [random.Random(seed).sample(texts * 20, 600) for seed in range(4)]

    def encode_all(order: list[str]) -> bool:
        return all(shared.encode(text) == expected[text] for text in order)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(encode_all, orders))
    assert shared._encoded_chars == sum(map(len, shared._encoded)) <= 5 * len(texts[0])
