"""Which rows of a packed batch belong to which lane. Knows row numbers only.

    rows   0    1    2 3 4 5 6    7        starts = (0, 1, 2, 7, 8)
           └─s0 └─s1 └─s2──────   └─s3
    steps: s0 s1 (one row, state carried)    spans: s2, and s3 if its lane holds no state yet

Rows that advance a carried state by one token go through an operation together; longer runs go one by one.
"""

from dataclasses import astuple, dataclass

import torch


@dataclass(frozen=True, slots=True)
class Span:
    """Rows [begin, end) of one sequence. `fresh`: the lane's state counts as zero and is not read."""

    begin: int
    end: int
    lane: int
    fresh: bool


@dataclass(frozen=True, slots=True)
class Ragged:
    """`sequences` are all of them in row order; `spans` those that are no steps.

    `step_rows` [B] int64 is None when every row is a step. `step_lanes` indexes lanes, in row order: [B] int64, or a slice where
    they follow one another, so that their states can be had without a gather. `table` [sequences, 4] int64 holds the sequences as
    (begin, end, lane, fresh).
    """

    sequences: tuple[Span, ...]
    spans: tuple[Span, ...]
    step_rows: torch.Tensor | None
    step_lanes: torch.Tensor | slice
    has_steps: bool
    table: torch.Tensor


def split_rows(
    starts: tuple[int, ...],
    lanes: tuple[int, ...],
    fresh: tuple[bool, ...],
    device: torch.device,
) -> Ragged:
    """Sequence s owns rows [starts[s], starts[s+1]) and advances lane lanes[s]; no two share a lane."""
    assert len(starts) == len(lanes) + 1 == len(fresh) + 1
    sequences = tuple(map(Span, starts, starts[1:], lanes, fresh))
    steps = [span for span in sequences if span.end - span.begin == 1 and not span.fresh]
    spans = tuple(span for span in sequences if span.end - span.begin > 1 or span.fresh)
    step_lanes = [span.lane for span in steps]
    first, last = (step_lanes[0], step_lanes[-1]) if steps else (0, -1)
    in_a_row = step_lanes == list(range(first, last + 1))
    return Ragged(
        sequences=sequences,
        spans=spans,
        step_rows=_int64([span.begin for span in steps], device) if spans else None,
        step_lanes=slice(first, last + 1) if in_a_row else _int64(step_lanes, device),
        has_steps=bool(steps),
        table=torch.tensor(list(map(astuple, sequences)), dtype=torch.int64, device=device),
    )


def _int64(values: list[int], device: torch.device) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64, device=device)
