"""Packed batches for operation tests: sequences of given lengths on scattered lanes. Knows no operation."""

import torch

from engine.ops.ragged import Ragged, split_rows

NAN = float("nan")
LENGTHS = [
    (1,),
    (2,),
    (63,),
    (64,),
    (65,),
    (130,),
    (1, 1, 1),
    (1, 65, 1, 1, 3),
    (130, 1, 63, 64),
]
"""Row counts of the sequences of one batch."""


def ragged(lengths: tuple[int, ...], lanes: tuple[int, ...], fresh: tuple[bool, ...]) -> Ragged:
    starts = tuple(sum(lengths[:i]) for i in range(len(lengths) + 1))
    return split_rows(starts, lanes, fresh, torch.device("cpu"))


def poisoned_but(states: torch.Tensor, lanes: tuple[int, ...]) -> torch.Tensor:
    """A copy of `states` in which every lane not named is NaN."""
    poisoned = torch.full_like(states, NAN)
    poisoned[list(lanes)] = states[list(lanes)]
    return poisoned


def scattered(count: int) -> tuple[int, ...]:
    """Distinct lanes out of 8, out of order."""
    return (5, 2, 7, 0, 3)[:count]
