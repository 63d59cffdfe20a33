"""One token is no "1 tokens": the helper, and that every sentence that counts something takes its noun from it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ninfer_proxy.wording import agreeing, counted

PACKAGE = Path(__file__).parents[2] / "ninfer_proxy"
NOUNS = (
    "byte", "checkpoint", "conversation", "hit", "item", "level", "line", "message", "request",
    "response", "slot", "token", "tool", "turn", "value",
)  # fmt: skip
# `{count} tokens`, `{count} prompt tokens`, in the parts of an f-string behind a value.
PLURAL = re.compile(rf"^ (?:[a-z]+ )?(?:{'|'.join(NOUNS)})s\b")


@pytest.mark.parametrize(
    ("number", "noun", "told"),
    [
        (0, "token", "0 tokens"),
        (1, "token", "1 token"),
        (2, "prompt token", "2 prompt tokens"),
        (12_000, "byte", "12,000 bytes"),
    ],
)
def test_nouns_agree(number: int, noun: str, told: str) -> None:
    assert counted(number, noun) == told


def test_verbs_agree() -> None:
    assert [agreeing(number, "was", "were") for number in (0, 1, 2)] == ["were", "was", "were"]


def told_plurals(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            for value, text in zip(node.values, node.values[1:], strict=False):
                counts = isinstance(value, ast.FormattedValue) and isinstance(text, ast.Constant)
                if counts and PLURAL.match(str(text.value)):
                    yield ast.unparse(node)


def test_a_plural_behind_a_number_is_found() -> None:
    assert (
        len([*told_plurals("f'{n} tokens'; f'All {n:,} prompt tokens.'; f'{a} of {b} items'")]) == 3
    )
    assert not [*told_plurals("f'{tokens}'; f'{n} of them'; f'{counted(n, 1)} wait'")]


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_no_sentence_has_a_fixed_plural(path: Path) -> None:
    assert not [*told_plurals(path.read_text())]
