"""Causal attention over keys and values kept in pages. Contract and dispatch; knows no model.

    token i of a sequence lives at  pool[pages[i // P], key | value, i % P]          P = page_tokens

    context_len tokens already there        the rows of this step
    ├──────────── history ────────────────┼── begin .. end ──┤
    row begin + r sees tokens 0 .. context_len + r (its own included)

store_kv        writes k, v [T, KH, D] of the step's rows into `pool`, converting to its dtype. Mutates only those rows.
paged_attention q [T, H, D] → [T, H, D] contiguous, in q's dtype; head h reads key head h // (H / KH); softmax((q · k) / sqrt(D))
                in fp32. Reads no token past a sequence's last row, and no page not named by its table.

pool [pages, 2, P, KH, D], any strides over the first two dimensions (a layer's slice of the whole pool).
"""

import torch

from engine.ops.paged_attention import cpu, naive, native
from engine.ops.paged_attention.paging import PagedRows, PagedSequence, Singles, page_rows

__all__ = ["PagedRows", "PagedSequence", "Singles", "page_rows", "paged_attention", "store_kv"]


def store_kv(k: torch.Tensor, v: torch.Tensor, pool: torch.Tensor, rows: PagedRows) -> None:
    if native.serves(k, pool) and native.serves(v, pool):
        native.store_kv(k, v, pool, rows)
        return
    pool[rows.row_pages, 0, rows.row_offsets] = k.to(pool.dtype)
    pool[rows.row_pages, 1, rows.row_offsets] = v.to(pool.dtype)


def paged_attention(q: torch.Tensor, pool: torch.Tensor, rows: PagedRows) -> torch.Tensor:
    if q.device.type == "cpu":
        return cpu.paged_attention(q, pool, rows)
    return naive.paged_attention(q, pool, rows)
