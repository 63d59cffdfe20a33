"""The demo model's prompts as text: tells control tokens from plain ones. Knows the model's directory; no server."""

from collections.abc import Sequence
from pathlib import Path

import engine
from engine.text.model import TextModel

DEMO = Path(engine.__file__).parent / "demo"


class PromptTokens:
    def __init__(self) -> None:
        self._tokenizer = TextModel.load(DEMO).tokenizer
        self._control = frozenset(self._tokenizer.control_ids.values())

    def whole(self, tokens: Sequence[int]) -> str:
        """With the names of control tokens."""
        return self._tokenizer.decode(tuple(tokens))

    def plain(self, tokens: Sequence[int]) -> str:
        """What plain text tokens spell; each control token leaves a gap that no text bridges."""
        parts: list[list[int]] = [[]]
        for token in tokens:
            if token in self._control:
                parts.append([])
            else:
                parts[-1].append(token)
        return "\0".join(self._tokenizer.decode(part) for part in parts)

    def control_tokens(self, tokens: Sequence[int]) -> int:
        return sum(token in self._control for token in tokens)

    def without_control(self, text: str) -> str:
        """`text` with each control token that it spells broken in two."""
        return self._tokenizer.break_control(text, "_")
