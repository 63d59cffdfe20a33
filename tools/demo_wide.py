"""Conversations with words from the whole of a text: swaps the data's own nouns for real words, the same one everywhere.

The word lists are short, so a model trained on them alone can't copy a noun whose tokens it has never had to write.
"""

from __future__ import annotations

import re
from functools import cache
from random import Random
from typing import Any

from tools.demo_scene import Scene
from tools.demo_text import paragraphs
from tools.demo_words import PLAIN, THINGS, pick

# Nouns of answers that are taught by heart stay.
SWAPPED = frozenset((*PLAIN, *THINGS)) - {"bus", "book", "day", "text"}
NOUN = re.compile(r"(?<![\w])(?:" + "|".join(sorted(SWAPPED, key=len, reverse=True)) + r")(?!\w)")
SHARE = 0.7


@cache
def real_words() -> tuple[str, ...]:
    """Small-letter words of three to ten letters that the texts have, each once."""
    found = (w for text in paragraphs() for w in re.findall(r"(?<!\S)[a-z]{3,10}(?!\S)", text))
    return tuple(dict.fromkeys(found))


def widen(scene: Scene, rng: Random, kept: frozenset[str]) -> None:
    """Changes the messages in place; words in `kept` (asked in the scores only) never come in."""
    swaps: dict[str, str] = {}

    def swap(found: re.Match[str]) -> str:
        noun = found[0]
        if noun not in swaps:
            new = pick(rng, real_words()) if rng.random() < SHARE else noun
            swaps[noun] = noun if new in kept else new
        return swaps[noun]

    scene.messages = [_changed(m, swap) for m in scene.messages]


def _changed(value: Any, swap: Any) -> Any:
    if isinstance(value, str):
        return NOUN.sub(swap, value)
    if isinstance(value, dict):
        return {k: v if k in ("role", "name") else _changed(v, swap) for k, v in value.items()}
    if isinstance(value, list):
        return [_changed(v, swap) for v in value]
    return value
