"""Storing keys and values, and attention of single rows over pages where they lie, in C. Knows CPU tensors only."""

import torch

from engine.ops.native import call
from engine.ops.native import serves as is_served
from engine.ops.paged_attention.paging import PagedRows

VECTOR = 16
MOST_DIM, MOST_PAGE_TOKENS = 256, 1024


def serves(x: torch.Tensor, pool: torch.Tensor) -> bool:
    _, _, page_tokens, _, dim = pool.shape
    return (
        dim % VECTOR == 0
        and dim <= MOST_DIM
        and page_tokens <= MOST_PAGE_TOKENS
        and x.stride()[1:] == (dim, 1)
        and is_served(x, pool)
    )


def store_kv(k: torch.Tensor, v: torch.Tensor, pool: torch.Tensor, rows: PagedRows) -> None:
    strides = k.stride(0), v.stride(0)
    call("store_kv", *_pages(pool), k, v, *strides, rows.row_pages, rows.row_offsets, k.shape[0])


def attend_singles(
    q: torch.Tensor, pool: torch.Tensor, tables: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    """Row b of q [B, H, D] is the newest of lengths[b] tokens, whose pages lie at address tables[b]; both [B] int64."""
    out = q.new_empty(q.shape)
    call("attend_singles", *_pages(pool), q, q.shape[1], q.shape[0], tables, lengths, out)
    return out


def _pages(pool: torch.Tensor) -> tuple[torch.Tensor | int, ...]:
    _, _, page_tokens, key_heads, dim = pool.shape
    return pool, pool.stride(0), pool.stride(1), page_tokens, key_heads, dim
