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
from engine.models.graph import DecodeGraph, Row
from engine.sampling import NO_TOKEN, generator_at, is_plainly_greedy, sample
from engine.sequence import Sequence, Work

log = logging.getLogger(__name__)


class Model(Protocol):
    def forward(self, batch: ForwardBatch, pools: CachePools) -> torch.Tensor:
        """Logits [len(logit_rows), vocab] fp32; updates the pools."""
        ...

    def recorded(self, pools: CachePools, rows: int, vocab_limit: int) -> DecodeGraph | None:
        """The forward of `rows` lanes by one token each, to be repeated; None where that can't be had."""
        ...


class Runner:
    """Mutates the pools through the model, the sequences not at all. Token ids from `vocab_limit` on are never sampled.

    One step may be begun ahead of its `run`, to be computed in the background. What it works on, the lanes of its sequences and
    their pages, is nobody's to touch before `run` or `rest`.
    """

    def __init__(self, model: Model, pools: CachePools, lanes: Lanes, vocab_limit: int) -> None:
        self._model = model
        self._pools = pools
        self._lanes = lanes
        self._vocab_limit = vocab_limit
        self._unused = torch.Generator()
        self._graphs: dict[int, DecodeGraph | None] = {}
        self._begun: tuple[Ordered[Work], DecodeGraph] | None = None

    def begins(self, rows: int) -> bool:
        """Whether a step of `rows` sequences by one token each can be begun ahead."""
        return self._graph(rows) is not None

    def begin(self, work: Ordered[Work]) -> None:
        """Begins a step for which `begins` holds; `run` of the same list finishes it."""
        assert self._begun is None
        graph = self._graph(len(work))
        assert graph is not None
        graph.begin(self._rows(work))
        self._begun = work, graph

    def rest(self) -> None:
        """Waits until nothing is computed in the background; what was begun is still to be `run`."""
        if self._begun is not None:
            self._begun[1].end()

    @torch.inference_mode()
    def run(self, work: Ordered[Work]) -> list[int | None]:
        """For each item the sampled token, None where none was wanted, NO_TOKEN where sampling failed for that one alone. Raises
        ModelFault when the forward itself fails: then the state of all lanes in `work` is unknown.
        """
        try:
            logits, likeliest = self._forward(work)
        except Exception as error:
            raise ModelFault(f"{type(error).__name__}: {error}") from error
        sampled = [item.sequence for item in work if item.sample]
        if likeliest is not None and all(map(_is_plain, sampled)):
            tokens: list[int] = likeliest.tolist()
            return [
                token if item.sample else None for token, item in zip(tokens, work, strict=True)
            ]
        if likeliest is not None and len(sampled) < len(work):
            logits = logits[[row for row, item in enumerate(work) if item.sample]]
        chosen = iter(self._sample(logits, sampled) if sampled else [])
        return [next(chosen) if item.sample else None for item in work]

    def _forward(self, work: Ordered[Work]) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Logits of the items that are sampled; or those of all items, and the likeliest tokens."""
        graph = self._taken(work)
        if graph is None:
            return self._model.forward(self._batch(work), self._pools), None
        return graph.end(), graph.likeliest

    def _taken(self, work: Ordered[Work]) -> DecodeGraph | None:
        """The graph that computes this step, begun by now; None where none can."""
        if self._begun is not None:
            (begun, graph), self._begun = self._begun, None
            assert begun is work
            return graph
        if any(item.tokens > 1 or item.sequence.computed == 0 for item in work):
            return None
        found = self._graph(len(work))
        if found is not None:
            found.begin(self._rows(work))
        return found

    def _graph(self, rows: int) -> DecodeGraph | None:
        """Recorded when it's first needed; None where the model can't be recorded."""
        if rows not in self._graphs:
            self._graphs[rows] = self._model.recorded(self._pools, rows, self._vocab_limit)
        return self._graphs[rows]

    def _rows(self, work: Ordered[Work]) -> list[Row]:
        lanes, size = self._lanes, self._pools.page_tokens
        rows = []
        for sequence in (item.sequence for item in work):
            lane, at = _lane(sequence), sequence.computed
            page = lanes.cell(lane, at // size)
            rows.append(Row(sequence.tokens[at], at, lane, page, lanes.address(lane)))
        return rows

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


def _is_plain(sequence: Sequence) -> bool:
    """Whether its next token is the likeliest of all."""
    return not sequence.banned and is_plainly_greedy(sequence.sampling)


def _lane(sequence: Sequence) -> int:
    assert sequence.lane is not None
    return sequence.lane
