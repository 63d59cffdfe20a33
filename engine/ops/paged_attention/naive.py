"""Attention over pages with one explicit mask a sequence. Knows no device."""

import math

import torch

from engine.ops.paged_attention.paging import PagedRows, PagedSequence


def paged_attention(q: torch.Tensor, pool: torch.Tensor, rows: PagedRows) -> torch.Tensor:
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    for sequence in rows.sequences:
        span = slice(sequence.begin, sequence.end)
        out[span] = _attend(q[span].float(), pool, sequence).to(q.dtype)
    return out


def _attend(q: torch.Tensor, pool: torch.Tensor, sequence: PagedSequence) -> torch.Tensor:
    group = q.shape[1] // pool.shape[3]
    keys, values = (
        pool[sequence.pages, part].flatten(0, 1)[: sequence.total_len].float() for part in (0, 1)
    )
    keys, values = (x.repeat_interleave(group, dim=1) for x in (keys, values))
    scores = torch.einsum("qhd,khd->hqk", q, keys) / math.sqrt(q.shape[-1])
    token = torch.arange(sequence.total_len, device=q.device)
    hidden = token[None] > token[sequence.context_len :, None]
    weights = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)
    return torch.einsum("hqk,khd->qhd", weights, values)
