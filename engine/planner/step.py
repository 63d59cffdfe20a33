"""What one forward pass computes, as a value: every decoding lane, and prompt chunks under a token budget. Pure.

A chunk ends on the next position where a checkpoint is wanted, since recurrent state exists at one position only. Prompts
are served in the order of planner.order; each token given to a later arrival counts towards the overtaken.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.planner.order import service_key


@dataclass(frozen=True, slots=True)
class Lineup:
    """One running sequence. `remaining` tokens are known and not computed (fewer are told where someone shorter waits for this
    prefix), `until_stop` lie before the next wanted checkpoint or the end. `urgent`: decoding or closing, so its few tokens go
    into every step.
    """

    lane: int
    arrival: int
    remaining: int
    until_stop: int
    urgent: bool
    overtaken: int


@dataclass(frozen=True, slots=True)
class Budget:
    """Prompt tokens a step: `alone` when nothing decodes, else `mixed`. No chunk but a last one is shorter than `least`."""

    alone: int
    mixed: int
    least: int = 16


@dataclass(frozen=True, slots=True)
class Chunk:
    lane: int
    tokens: int


@dataclass(frozen=True, slots=True)
class StepPlan:
    """`urgent` chunks first, then `prompts` in order of service. `overtaken`: lane → tokens to add to its count."""

    urgent: tuple[Chunk, ...]
    prompts: tuple[Chunk, ...]
    overtaken: tuple[tuple[int, int], ...]


def plan_step(lineups: Sequence[Lineup], budget: Budget) -> StepPlan:
    """O(n log n) in running sequences."""
    urgent = tuple(Chunk(each.lane, each.until_stop) for each in lineups if each.urgent)
    prompts = [each for each in lineups if not each.urgent]
    prompts.sort(key=lambda each: service_key(each.remaining, each.overtaken, each.arrival))
    chunks = _share_out(prompts, budget.mixed if urgent else budget.alone, budget.least)
    return StepPlan(urgent, chunks, overtaking(prompts, chunks))


def _share_out(prompts: Sequence[Lineup], budget: int, least: int) -> tuple[Chunk, ...]:
    chunks: list[Chunk] = []
    for each in prompts:
        tokens = min(each.until_stop, budget)
        if tokens == each.until_stop or tokens >= least or (tokens > 0 and not chunks):
            chunks.append(Chunk(each.lane, tokens))
            budget -= tokens
    return tuple(chunks)


def overtaking(prompts: Sequence[Lineup], chunks: Sequence[Chunk]) -> tuple[tuple[int, int], ...]:
    """For each prompt that got less than it could use: the tokens that later arrivals got."""
    given = {chunk.lane: chunk.tokens for chunk in chunks}
    passed = []
    for each in prompts:
        if given.get(each.lane, 0) < each.until_stop:
            later = sum(
                given.get(other.lane, 0) for other in prompts if other.arrival > each.arrival
            )
            if later:
                passed.append((each.lane, later))
    return tuple(passed)
