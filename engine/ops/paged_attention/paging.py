"""Which page and offset each row of a packed batch has. Knows row and page numbers, not what the pages hold."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch


@dataclass(frozen=True, slots=True)
class PagedSequence:
    """Rows [begin, end) continue a sequence that already has `context_len` tokens; `pages` [n] int64 hold them all."""

    begin: int
    end: int
    context_len: int
    pages: torch.Tensor

    @property
    def total_len(self) -> int:
        return self.context_len + self.end - self.begin


@dataclass(frozen=True, slots=True)
class Singles:
    """The sequences of one row, in row order: `lengths` [B] int64 tokens with that row, `tables` [B] int64 the addresses of their
    page tables (for kernels on the CPU), `rows` [B] int64 their rows, None where there are no others.
    """

    lengths: torch.Tensor
    tables: torch.Tensor
    rows: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class PagedRows:
    """`row_pages`, `row_offsets` [T] int64: where each row's key and value are kept. `runs` are the sequences of several rows."""

    sequences: tuple[PagedSequence, ...]
    runs: tuple[PagedSequence, ...]
    singles: Singles
    row_pages: torch.Tensor
    row_offsets: torch.Tensor


def page_rows(
    starts: tuple[int, ...],
    context_lens: tuple[int, ...],
    page_tables: Sequence[torch.Tensor] | torch.Tensor,
    page_tokens: int,
) -> PagedRows:
    """Table s names, in order, at least the pages that hold context_lens[s] + rows of s tokens; more are ignored."""
    sequences = []
    indices = []  # a row's token number, counted over the tables laid end to end
    first = 0
    for s, context_len in enumerate(context_lens):
        begin, end = starts[s], starts[s + 1]
        count = -(-(context_len + end - begin) // page_tokens)
        pages = page_tables[s][:count]
        assert pages.numel() == count, "page table shorter than its sequence"
        sequences.append(PagedSequence(begin, end, context_len, pages))
        token = first * page_tokens + context_len
        indices.append(range(token, token + end - begin))
        first += count
    tables = torch.cat([sequence.pages for sequence in sequences])
    index = _int64(list(chain.from_iterable(indices)), tables.device)
    return PagedRows(
        sequences=tuple(sequences),
        runs=tuple(each for each in sequences if each.end - each.begin > 1),
        singles=_singles(sequences, tables.device),
        row_pages=tables[index // page_tokens],
        row_offsets=index % page_tokens,
    )


def _singles(sequences: Sequence[PagedSequence], device: torch.device) -> Singles:
    singles = [each for each in sequences if each.end - each.begin == 1]
    only = len(singles) == len(sequences)
    return Singles(
        lengths=_int64([each.total_len for each in singles], device),
        tables=_int64([each.pages.data_ptr() for each in singles], device),
        rows=None if only else _int64([each.begin for each in singles], device),
    )


def _int64(values: list[int], device: torch.device) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64, device=device)
