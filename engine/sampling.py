"""Logits → token ids. Knows the request's sampling values and what was generated so far; keeps nothing between calls.

    logits ─ penalties ─┬─ temperature 0: the largest
                        └─ / temperature ─ top_k ─ top_p ─ min_p ─ one uniform number picks by cumulative probability

Rows that draw are drawn one by one from their own generators: what a sequence gets does not depend on its company.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence

import torch

from engine.api import Sampling
from engine.ops.greedy import greedy

NO_TOKEN = -1
"""The answer for a row in which no token has a finite logit: the fault of that sequence alone."""


def generator_at(seed: int, position: int) -> torch.Generator:
    """The generator of one sequence at one output position, so that nothing need be kept of earlier draws.

    Equal arguments give equal draws; draws of neighbouring seeds or positions are unrelated.
    """
    digest = hashlib.blake2b(f"{seed} {position}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little"))


@torch.inference_mode()
def sample(
    logits: torch.Tensor,
    params: Sequence[Sampling],
    counts: Sequence[Mapping[int, int]],
    generators: Sequence[torch.Generator],
    vocab_limit: int,
) -> list[int]:
    """One token id below `vocab_limit` for each row of `logits` [B, V] fp32, or NO_TOKEN.

    `counts[b]` says how often each token was generated in row b (the prompt is not in it); read only for rows with penalties.
    `generators[b]`, on the CPU, is advanced by rows with a temperature. What isn't finite is never chosen. `logits` is not changed.
    """
    assert len(params) == len(counts) == len(generators) == logits.shape[0]
    logits = logits[:, :vocab_limit]
    if all(map(is_plainly_greedy, params)):
        return [int(token) for token in greedy(logits).tolist()]
    logits = logits.nan_to_num(nan=-math.inf, posinf=-math.inf, neginf=-math.inf)
    rows = zip(logits, params, counts, generators, strict=True)
    return [_sample_row(*row) for row in rows]


def is_plainly_greedy(params: Sampling) -> bool:
    """Whether the largest finite logit is what `sample` chooses."""
    return params.temperature == 0 and not _has_penalties(params)


def _has_penalties(params: Sampling) -> bool:
    added = params.presence_penalty, params.frequency_penalty
    return any(added) or params.repetition_penalty != 1


def _sample_row(
    logits: torch.Tensor, params: Sampling, counts: Mapping[int, int], generator: torch.Generator
) -> int:
    if _has_penalties(params) and counts:
        logits = _penalized(logits, params, counts)
    largest, index = logits.max(dim=-1)
    if largest == -math.inf:
        return NO_TOKEN
    if params.temperature == 0:
        return int(index)
    # Shifted before it is scaled: a tiny temperature (0 in fp32) may send the rest to -inf, but never the largest to inf.
    return _draw((logits.double() - largest) / params.temperature, params, generator)


def _penalized(logits: torch.Tensor, params: Sampling, counts: Mapping[int, int]) -> torch.Tensor:
    """Repetition divides positive and multiplies negative logits of seen tokens; presence and frequency are subtracted."""
    seen = [token for token in counts if counts[token] > 0 and token < len(logits)]
    index = torch.tensor(seen, dtype=torch.int64, device=logits.device)
    times = logits.new_tensor([counts[token] for token in seen])
    values, factor = logits[index], params.repetition_penalty
    values = torch.where(values > 0, values / factor, values * factor)
    values = values - params.presence_penalty - params.frequency_penalty * times
    return logits.index_copy(0, index, values)


def _draw(scaled: torch.Tensor, params: Sampling, generator: torch.Generator) -> int:
    """`scaled` [V] fp64: logits over temperature, the largest 0."""
    ids = None
    if 0 < params.top_k < len(scaled):
        scaled, ids = scaled.topk(params.top_k)
    elif params.top_p < 1:
        scaled, ids = scaled.sort(descending=True, stable=True)
    chances = scaled.softmax(dim=-1)
    if params.top_p < 1:
        before = chances.cumsum(0) - chances
        before[0] = -1  # the likeliest token always stays
        chances = chances.masked_fill(before >= params.top_p, 0)
    if params.min_p > 0:
        chances = chances.masked_fill(chances < min(params.min_p, 1.0) * chances.max(), 0)
    picked = _pick(chances, torch.rand((), dtype=torch.float64, generator=generator).item())
    return picked if ids is None else int(ids[picked])


def _pick(chances: torch.Tensor, uniform: float) -> int:
    """The first index whose cumulative chance exceeds `uniform` (0 <= uniform < 1) of the total; its own chance is positive."""
    cumulative = chances.cumsum(0)
    total = cumulative[-1]
    index = torch.searchsorted(cumulative, total * uniform, right=True)
    last = torch.searchsorted(cumulative, total)
    return int(torch.minimum(index, last))
