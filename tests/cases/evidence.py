"""Everything a played case left behind, for checks to judge. Knows no check; asks nobody."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tests.cases.answer import Answer


class PromptText(Protocol):
    """What a prompt's tokens mean (prompt_text.PromptTokens)."""

    def whole(self, tokens: Sequence[int]) -> str: ...

    def plain(self, tokens: Sequence[int]) -> str: ...

    def control_tokens(self, tokens: Sequence[int]) -> int: ...


class NotThere(Exception):
    """A check needs something that the case didn't leave; the message says what. The check fails by it."""


@dataclass(slots=True)
class Database:
    """`integrity` holds one answer of SQLite for each look, `rows` the tables' sizes at the end, `added` by step the rows that were
    added, `fixture_rows` those of an installed fixture that are still there.
    """

    integrity: list[str] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    added: dict[str, int] = field(default_factory=dict)
    fixture_rows: int | None = None


@dataclass(slots=True)
class Memory:
    """Resident bytes of the engine: beside any state, at most; and the budgets it was given for state."""

    at_start: int
    at_most: int
    budget: int


@dataclass(slots=True)
class Evidence:
    """Mutable while the case is played. `cold` are the same requests with all caches dropped, `solo` with nothing beside them as
    well; `generated` those of a `generate` step. `seconds` by step and metric.
    """

    text: PromptText
    answers: dict[str, Answer] = field(default_factory=dict)
    cold: dict[str, Answer] = field(default_factory=dict)
    solo: dict[str, Answer] = field(default_factory=dict)
    plain: dict[str, Answer] = field(default_factory=dict)
    generated: dict[str, list[Answer]] = field(default_factory=dict)
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)
    database: Database = field(default_factory=Database)
    memory: Memory | None = None
    log: str = ""
    metrics: str = ""
    health: Mapping[str, object] = field(default_factory=dict)
    alive: bool = False

    def answer(self, step: str) -> Answer:
        """Errors: NotThere."""
        if step not in self.answers:
            raise NotThere(f"{step} was never answered")
        return self.answers[step]

    def tokens(self, of: str) -> int:
        """`step.input` or `step.total` (with the output), by the server's own usage; of a request whose client left, which is told
        none, by its explanation. Errors: NotThere.
        """
        step, _, part = of.partition(".")
        answer = self.answer(step)
        read, said = answer.input_tokens, answer.output_tokens
        if answer.cut is not None and answer.explained is not None:
            read, said = answer.explained["prompt_tokens"], answer.explained["output_tokens"]
        if read is None or said is None:
            raise NotThere(f"{step} has no usage ({told(answer)})")
        if part not in ("input", "total"):
            raise NotThere(f"{of} is no number of tokens")
        return read if part == "input" else read + said

    def input(self, step: str) -> int:
        return self.tokens(f"{step}.input")

    def cached(self, step: str) -> int:
        cached = self.answer(step).cached_tokens
        if cached is None:
            raise NotThere(f"{step} says nothing of cached tokens ({told(self.answer(step))})")
        return cached

    def prompt(self, step: str) -> tuple[int, ...]:
        prompt = self.answer(step).prompt
        if prompt is None:
            raise NotThere(f"no prompt of {step} reached the engine ({told(self.answer(step))})")
        return prompt


def told(answer: Answer) -> str:
    """How a request went, in few words."""
    error = answer.error.get("message", "")
    return " ".join(f"status {answer.status} {answer.trouble} {error}".split())
