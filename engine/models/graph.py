"""The forward pass of lanes that each advance by one token, recorded once and repeated. Knows rows and addresses, no requests.

begin: token ids, places ──► fixed buffers ──► replay in the background ──► end: logits, likeliest tokens (fixed buffers too)
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch

from engine.models.batch import CachePools
from engine.ops import native
from engine.ops.greedy import greedy
from engine.ops.paged_attention import PagedRows, Singles
from engine.ops.ragged import Ragged


class Recordable(Protocol):
    """A model whose pass over places that are worked out consists of kernels."""

    parameters: int

    def trunk(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        lane_rows: Ragged,
        paged_rows: PagedRows,
        pools: CachePools,
    ) -> torch.Tensor: ...

    def logits(self, hidden: torch.Tensor) -> torch.Tensor: ...


class Row(NamedTuple):
    """One lane's token: its id, how many are before it (at least one), its lane, the page that it goes to, and the address of
    the lane's page table [pages] int64.
    """

    token_id: int
    context_len: int
    lane: int
    page: int
    table: int


WORTH_SHARING = 12_000_000
"""Multiplications that take longer than threads take to meet after each operation."""


class DecodeGraph:
    """For `rows` lanes whose state is carried (none fresh), on a CPU. Raises native.NotRecorded where a part has no kernel."""

    def __init__(self, model: Recordable, pools: CachePools, rows: int, vocab_limit: int) -> None:
        shared = rows * model.parameters > WORTH_SHARING
        threads = torch.get_num_threads()
        self._threads = threads if shared else min(threads, 2)
        self._page_tokens = pools.page_tokens
        places = torch.zeros(6, rows, dtype=torch.int64)
        token_ids, positions, pages, offsets, lengths, tables = places
        spans = torch.zeros(rows, 4, dtype=torch.int64)
        self._places, self._spans_by_row = places.numpy(), spans.numpy()
        self._spans_by_row[:, 0] = range(rows)
        self._spans_by_row[:, 1] = range(1, rows + 1)
        paged = PagedRows((), (), Singles(lengths, tables, None), pages, offsets)
        lanes = Ragged((), (), None, slice(0), True, spans)
        with torch.inference_mode(), native.recording() as self._recording:
            self._logits = model.logits(model.trunk(token_ids, positions, lanes, paged, pools))
            self._likeliest = greedy(self._logits[:, :vocab_limit])

    def begin(self, rows: Sequence[Row]) -> None:
        """Mutates the pools as a forward does, in the background: until `end`, nothing else may touch the lanes' states and pages."""
        size = self._page_tokens
        token_ids, context_lens, lanes, pages, tables = zip(*rows, strict=True)
        self._places[:] = (
            token_ids,
            context_lens,
            pages,
            [length % size for length in context_lens],
            [length + 1 for length in context_lens],
            tables,
        )
        self._spans_by_row[:, 2] = lanes
        self._recording.begin(self._threads)

    def end(self) -> torch.Tensor:
        """Waits for what was begun. Logits [rows, vocab] fp32, valid until the next `begin`."""
        self._recording.end()
        return self._logits

    @property
    def likeliest(self) -> torch.Tensor:
        """Of the logits that `end` gave: the likeliest token below the limit for each row [rows] int64, as engine.ops.greedy has it."""
        return self._likeliest
