"""A small byte-level tokenizer with Qwen's pre-tokenizer and control tokens, trained here, beside the bundled template."""

import inspect
import json
import textwrap
from pathlib import Path

import tokenizers
from hypothesis import HealthCheck, settings
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers

import engine
from engine.text.model import TextModel

FUZZ = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""For every property test here: a busy machine is no reason to fail."""

TEMPLATE = Path(engine.__file__).parent / "demo" / "chat_template.jinja"

HIDDEN = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>",
    "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
VISIBLE = (
    "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>",
)  # fmt: skip

WORD = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train_tokenizer() -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORD), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    text = [inspect.getsource(module) for module in (textwrap, json, inspect)]
    trainer = trainers.BpeTrainer(
        vocab_size=1200,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    blanks = "x\n  \ny\n \n\nz >\n\n" * 200  # so that runs of blanks have tokens of their own
    tokenizer.train_from_iterator([*text, TEMPLATE.read_text(), blanks], trainer)
    tokenizer.add_tokens([AddedToken(token, special=True, normalized=False) for token in HIDDEN])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in VISIBLE])
    return tokenizer


class Speaker:
    """Turns text a model might write into its tokens: control tokens as such, the rest as trained or byte by byte."""

    def __init__(self, model: TextModel) -> None:
        self._tokenizer = model.tokenizer
        self._byte_ids = {
            self._tokenizer.token_bytes(number): number
            for number in range(self._tokenizer.vocab_limit)
        }

    def tokens(self, text: str) -> list[int]:
        return self._tokenizer.encode_parts(self._tokenizer.split(text))

    def spelled(self, text: str) -> list[int]:
        """As plain text, control tokens spelled out."""
        return list(self._tokenizer.encode(text))

    def bytes(self, data: bytes) -> list[int]:
        return [self._byte_ids[bytes([byte])] for byte in data]
