"""The demo model's training data: what the scores ask is never trained, and the data follow from the seed alone."""

import re
from random import Random

import pytest

from tools.demo_agent import HELD_SHELL_NAMES
from tools.demo_data import conversation
from tools.demo_facts import HELD_KEYS, HELD_TELL
from tools.demo_phrases import (
    HELD_ASK,
    HELD_CAPITAL,
    HELD_REPEAT,
    HELD_RUN,
    HELD_SUM,
    apart,
    bare_words,
    distance,
)
from tools.demo_skills import HELD_CHATS

HELD = (*HELD_TELL, *HELD_ASK, *HELD_CAPITAL, *HELD_REPEAT, *HELD_RUN, *HELD_SUM, *HELD_CHATS)
CONVERSATIONS = 400


def pattern(phrasing: str) -> re.Pattern[str]:
    """Finds the phrasing whatever its marks, letter case and the words in its places."""
    parts = [".+?" if word.startswith("{") else re.escape(word) for word in bare_words(phrasing)]
    return re.compile(r"(?<!\w)" + r"\W+".join(parts) + r"(?!\w)", re.IGNORECASE | re.DOTALL)


@pytest.fixture(scope="module")
def trained() -> list[str]:
    """What users say in the data, and the names of the tools offered."""
    rng = Random(99)
    said: list[str] = []
    for _ in range(CONVERSATIONS):
        scene = conversation(rng, rng.choice((15, 100, 300)))
        said += [m["content"] for m in scene.messages if m["role"] == "user"]
        said += [t["function"]["name"] for t in scene.tools]
    return said


@pytest.mark.parametrize("phrasing", HELD)
def test_no_training_message_has_a_held_out_phrasing(phrasing: str, trained: list[str]) -> None:
    found = pattern(phrasing)
    assert found.search(phrasing)
    assert [text for text in trained if found.fullmatch(text.strip())] == []


def test_no_training_message_has_a_held_out_key_or_tool(trained: list[str]) -> None:
    assert not set(trained) & set(HELD_SHELL_NAMES)
    told = re.compile(rf"(?<!\w)({'|'.join(HELD_KEYS)}) is ", re.IGNORECASE)
    assert [text for text in trained if told.search(text)] == []


@pytest.mark.parametrize(
    ("text", "held", "allowed"),
    [
        ("Could you tell me {K}?", HELD_ASK, False),
        ("can you please tell me {K}", HELD_ASK, False),
        ("What is {K}?", HELD_ASK, True),
        ("Run the command `{c}` and report back.", HELD_RUN, False),
        ("Could you run `{c}` and show me the result?", HELD_RUN, False),
        ("Run `{c}`.", HELD_RUN, True),
    ],
)
def test_phrasings_close_to_a_held_out_one_are_not_trained(
    text: str, held: tuple[str, ...], allowed: bool
) -> None:
    assert apart(text, held) is allowed


def test_distance_counts_words() -> None:
    assert distance(["what", "is", "it"], ["what", "was", "it"]) == 1
    assert distance(["tell", "me"], ["please", "tell", "me", "now"]) == 2
    assert distance([], ["a", "b"]) == 2


def test_the_same_seed_gives_the_same_conversation() -> None:
    first, second = (conversation(Random(5), 200, 600).messages for _ in range(2))
    assert first == second
