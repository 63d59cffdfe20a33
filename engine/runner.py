"""Carries out one step on the device: tokens → forward → sampled tokens. Knows lanes and tensors, no queues and no text."""

from collections.abc import Sequence as Ordered
from itertools import accumulate
from typing import Protocol

import numpy as np
import torch

from engine.cache.lanes import Lanes
from engine.errors import ModelFault
from engine.models.batch import CachePools, ForwardBatch
from engine.sequence import Sequence, Work


class Model(Protocol):
    def forward(self, batch: ForwardBatch, pools: CachePools) -> torch.Tensor:
        """Logits [len(logit_rows), vocab] fp32; updates the pools."""
        ...


class Choose(Protocol):
    def __call__(self, logits: torch.Tensor, sequences: Ordered[Sequence]) -> list[int | Exception]:
        """A token for each row of logits [R, vocab], or what went wrong with that row alone."""
        ...


class Runner:
    """Mutates the pools through the model, the sequences not at all."""

    def __init__(self, model: Model, pools: CachePools, lanes: Lanes, choose: Choose) -> None:
        self._model = model
        self._pools = pools
        self._lanes = lanes
        self._choose = choose

    @torch.inference_mode()
    def run(self, work: Ordered[Work]) -> list[int | Exception | None]:
        """For each item the sampled token, None where none was wanted, or the fault of that one alone. Raises ModelFault when
        the forward itself fails: then the state of all lanes in `work` is unknown.
        """
        try:
            logits = self._model.forward(self._batch(work), self._pools)
        except Exception as error:
            raise ModelFault(f"{type(error).__name__}: {error}") from error
        sampled = [item.sequence for item in work if item.sample]
        chosen = iter(self._choose(logits, sampled) if sampled else [])
        return [next(chosen) if item.sample else None for item in work]

    def _batch(self, work: Ordered[Work]) -> ForwardBatch:
        device = self._pools.kv.device
        spans = [(item.sequence.computed, item.sequence.computed + item.tokens) for item in work]
        pieces = [item.sequence.tokens[a:b] for item, (a, b) in zip(work, spans, strict=True)]
        token_ids = np.concatenate([np.frombuffer(piece, np.uint32) for piece in pieces])
        positions = np.concatenate([np.arange(a, b) for a, b in spans])
        ends = tuple(accumulate(item.tokens for item in work))
        lanes = tuple(_lane(item.sequence) for item in work)
        rows = [end - 1 for end, item in zip(ends, work, strict=True) if item.sample]
        return ForwardBatch(
            token_ids=torch.from_numpy(token_ids.astype(np.int64)).to(device),
            positions=torch.from_numpy(positions).to(device),
            starts=(0, *ends),
            context_lens=tuple(start for start, _ in spans),
            lanes=lanes,
            page_tables=tuple(self._lanes.table(lane).to(device) for lane in lanes),
            logit_rows=torch.tensor(rows, dtype=torch.int64, device=device),
        )


def _lane(sequence: Sequence) -> int:
    assert sequence.lane is not None
    return sequence.lane
