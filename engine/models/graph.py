"""The forward pass of lanes that each advance by one token, recorded once and repeated. Knows rows and addresses, no requests.

fill: token ids, places ──► fixed buffers ──► replay ──► logits (a fixed buffer too)
"""

from collections.abc import Sequence
from typing import Protocol

import torch

from engine.models.batch import CachePools
from engine.ops import native
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


WORTH_SHARING = 12_000_000
"""Multiplications that take longer than threads take to meet after each operation."""


class DecodeGraph:
    """For `rows` lanes whose state is carried (none fresh), on a CPU. Raises native.NotRecorded where a part has no kernel."""

    def __init__(self, model: Recordable, pools: CachePools, rows: int) -> None:
        shared = rows * model.parameters > WORTH_SHARING
        self._threads = torch.get_num_threads() if shared else 1
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

    def run(
        self,
        token_ids: Sequence[int],
        context_lens: Sequence[int],
        lanes: Sequence[int],
        page_tables: Sequence[torch.Tensor],
    ) -> torch.Tensor:
        """Logits [rows, vocab] fp32, valid until the next run. Row b is the token behind context_lens[b] > 0 others of lane lanes[b];
        its place in the last of its pages is there. Mutates the pools as a forward does.
        """
        size = self._page_tokens
        ends = zip(page_tables, context_lens, strict=True)
        self._places[:] = (
            token_ids,
            context_lens,
            [int(table[length // size]) for table, length in ends],
            [length % size for length in context_lens],
            [length + 1 for length in context_lens],
            [table.data_ptr() for table in page_tables],
        )
        self._spans_by_row[:, 2] = lanes
        self._recording.replay(self._threads)
        return self._logits
