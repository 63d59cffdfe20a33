"""Carries out one step on the device: tokens → forward → sampled tokens. Knows lanes and tensors, no queues and no text."""

import logging
from collections.abc import Sequence as Ordered
from itertools import accumulate
from typing import Protocol

import numpy as np
import torch

from engine.cache.lanes import Lanes
from engine.errors import ModelFault
from engine.models.batch import CachePools, ForwardBatch
from engine.models.graph import DecodeGraph
from engine.sampling import NO_TOKEN, generator_at, sample
from engine.sequence import Sequence, Work

log = logging.getLogger(__name__)


class Model(Protocol):
    def forward(self, batch: ForwardBatch, pools: CachePools) -> torch.Tensor:
        """Logits [len(logit_rows), vocab] fp32; updates the pools."""
        ...

    def recorded(self, pools: CachePools, rows: int) -> DecodeGraph | None:
        """The forward of `rows` lanes by one token each, to be repeated; None where that can't be had."""
        ...


class Runner:
    """Mutates the pools through the model, the sequences not at all. Token ids from `vocab_limit` on are never sampled."""

    def __init__(self, model: Model, pools: CachePools, lanes: Lanes, vocab_limit: int) -> None:
        self._model = model
        self._pools = pools
        self._lanes = lanes
        self._vocab_limit = vocab_limit
        self._unused = torch.Generator()
        self._graphs: dict[int, DecodeGraph | None] = {}

    @torch.inference_mode()
    def run(self, work: Ordered[Work]) -> list[int | None]:
        """For each item the sampled token, None where none was wanted, NO_TOKEN where sampling failed for that one alone. Raises
        ModelFault when the forward itself fails: then the state of all lanes in `work` is unknown.
        """
        try:
            logits = self._forward(work)
        except Exception as error:
            raise ModelFault(f"{type(error).__name__}: {error}") from error
        sampled = [item.sequence for item in work if item.sample]
        chosen = iter(self._sample(logits, sampled) if sampled else [])
        return [next(chosen) if item.sample else None for item in work]

    def _forward(self, work: Ordered[Work]) -> torch.Tensor:
        """Logits of the items that are sampled."""
        if all(item.tokens == 1 and item.sequence.computed > 0 for item in work):
            graph = self._graph(len(work))
            if graph is not None:
                return self._repeat(graph, work)
        return self._model.forward(self._batch(work), self._pools)

    def _graph(self, rows: int) -> DecodeGraph | None:
        """Recorded when it's first needed; None where the model can't be recorded."""
        if rows not in self._graphs:
            self._graphs[rows] = self._model.recorded(self._pools, rows)
        return self._graphs[rows]

    def _repeat(self, graph: DecodeGraph, work: Ordered[Work]) -> torch.Tensor:
        sequences = [item.sequence for item in work]
        lanes = [_lane(sequence) for sequence in sequences]
        logits = graph.run(
            token_ids=[sequence.tokens[sequence.computed] for sequence in sequences],
            context_lens=[sequence.computed for sequence in sequences],
            lanes=lanes,
            page_tables=[self._lanes.table(lane) for lane in lanes],
        )
        if all(item.sample for item in work):
            return logits
        return logits[[row for row, item in enumerate(work) if item.sample]]

    def _sample(self, logits: torch.Tensor, sequences: Ordered[Sequence]) -> list[int]:
        try:
            return self._sample_rows(logits, sequences)
        except Exception:
            log.exception("sampling %d rows failed; once more one by one", len(sequences))
        return [self._sample_alone(logits[at], each) for at, each in enumerate(sequences)]

    def _sample_alone(self, row: torch.Tensor, sequence: Sequence) -> int:
        try:
            (token,) = self._sample_rows(row[None], [sequence])
        except Exception:
            log.exception("request %s: sampling failed", sequence.request_id)
            return NO_TOKEN
        return token

    def _sample_rows(self, logits: torch.Tensor, sequences: Ordered[Sequence]) -> list[int]:
        for at, sequence in enumerate(sequences):
            for token in sequence.banned:
                logits[at, token] = -torch.inf
        return sample(
            logits,
            [sequence.sampling for sequence in sequences],
            [sequence.counts for sequence in sequences],
            [self._generator(sequence) for sequence in sequences],
            self._vocab_limit,
        )

    def _generator(self, sequence: Sequence) -> torch.Generator:
        """Depends on the seed and the place in the output only, so a preempted sequence goes on as it would have."""
        if sequence.sampling.temperature == 0:
            return self._unused
        return generator_at(sequence.seed, sequence.output_tokens)

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
