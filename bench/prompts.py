"""Prompts of a wanted length in tokens, each different from all others. Knows the text side only."""

from random import Random

from engine.api import Message, Prompt
from engine.text.model import TextModel

TEXT = """
the file reads a list of names and writes each of them to the other side when the last line has been seen
open close first second third number value error result count small large table row column page token state
return while before after under over every never always again once more less most least left right
"""


class Prompts:
    """Hands out prompts; equal `seed` and equal calls give equal ones. Lengths are exact up to a word's tokens."""

    def __init__(self, text: TextModel, seed: int = 1) -> None:
        self._text = text
        self._random = Random(seed)
        self._number = 0
        self._vocabulary = TEXT.split()

    def cold(self, tokens: int, head: str = "") -> Prompt:
        """About `tokens` tokens, the opener included, that differ from any other prompt in the first word behind `head`.

        With `head`, a system message that several prompts may share, it counts towards the tokens.
        """
        self._number += 1
        system = (Message("system", head),) if head else ()
        begin = f"{self._number} {self._random.randrange(10**6)}"
        empty = Prompt((*system, Message("user", begin)), thinking=False)
        words = self._words(tokens - self._text.count(empty))
        return Prompt((*system, Message("user", f"{begin} {words}")), thinking=False)

    def head(self, tokens: int) -> str:
        """A text of about `tokens` tokens."""
        return self._words(tokens)

    def ids(self, prompt: Prompt) -> tuple[int, ...]:
        return self._text.render(prompt).token_ids

    def _words(self, tokens: int) -> str:
        """Text of `tokens` tokens or a few less."""
        if tokens <= 0:
            return ""
        words = self._random.choices(self._vocabulary, k=tokens)
        text = " ".join(words)
        ids = self._text.tokenizer.encode(text)
        # Every word takes at least one token, so there are enough; the cut may split a word, which is text as well.
        return b"".join(map(self._text.tokenizer.token_bytes, ids[:tokens])).decode(errors="ignore")
