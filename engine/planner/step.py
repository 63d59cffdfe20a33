"""What one forward pass computes, as a value: every decoding lane, and prompt chunks under a token budget. Pure.

A chunk ends on the next position where a checkpoint is wanted, since recurrent state exists at one position only. Prompts
are served in the order of planner.order; each token given to a later arrival counts towards the overtaken. A step shall take about
as long wherever its prompts are, so a token deep in its context counts for more than one; and where a prompt ends, little is
computed of others, since its first token waits for all of the step.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from engine.planner.order import service_key


@dataclass(frozen=True, slots=True)
class Lineup:
    """One running sequence. `remaining` tokens are known and not computed (fewer are told where someone shorter waits for this
    prefix), `until_stop` lie before the next wanted checkpoint or the end. `urgent`: decoding or closing, so its few tokens go
    into every step. `computed` tokens lie before.
    """

    lane: int
    arrival: int
    remaining: int
    until_stop: int
    urgent: bool
    overtaken: int
    computed: int = 0


@dataclass(frozen=True, slots=True)
class Budget:
    """Prompt tokens a step: `alone` when nothing decodes, else `mixed`. No chunk but a last one is shorter than `least`.

    A token with c others before it counts as 1 + c * `context_weight`. Whatever they count, of the prompt that comes first at least
    `few` tokens are computed, and `mixed` beside decodes. Where a prompt ends, others get no more than what is left of `few`.
    """

    alone: int
    mixed: int
    least: int = 16
    context_weight: float = 0.0
    few: int = 128

    def fit(self, tokens: int, computed: int, budget: float) -> int:
        """How many of `tokens` behind `computed` others the budget pays for."""
        each, growth = 1 + computed * self.context_weight, self.context_weight / 2
        if growth == 0:
            return min(tokens, int(budget))
        paid = (math.sqrt(each * each + 4 * growth * max(budget, 0)) - each) / (2 * growth)
        return min(tokens, int(paid))

    def cost(self, tokens: int, computed: int) -> float:
        return tokens * (1 + (computed + tokens / 2) * self.context_weight)


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
    chunks = _share_out(prompts, budget, budget.mixed if urgent else budget.alone)
    return StepPlan(urgent, chunks, overtaking(prompts, chunks))


def _share_out(prompts: Sequence[Lineup], budget: Budget, tokens: int) -> tuple[Chunk, ...]:
    chunks: list[Chunk] = []
    left, ends = float(tokens), False
    floor = min(budget.few, tokens) if tokens == budget.alone else tokens
    for each in prompts:
        paid = budget.fit(each.until_stop, each.computed, left)
        held_back = ends and paid < each.remaining
        if held_back:
            paid = budget.fit(paid, each.computed, left - (tokens - budget.few))
        if not chunks:
            paid = max(paid, min(each.until_stop, floor))
        if paid > 0 and (paid == each.until_stop or paid >= budget.least or not chunks):
            chunks.append(Chunk(each.lane, paid))
            left -= budget.cost(paid, each.computed)
            ends = ends or paid == each.remaining
        if held_back:  # for the sake of what ends, not of those behind it
            break
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
