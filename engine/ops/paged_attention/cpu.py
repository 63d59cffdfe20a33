"""Attention over pages with torch's flash kernel, one sequence at a time and no mask in memory. Knows CPU tensors only.

    keys    history        this step
          ┌──────────────┬─────────┐
    rows  │  all visible │ causal  │   two kernel calls, joined by their log-sum-exps
          └──────────────┴─────────┘

The history needs no mask, so the query heads that share a key head are laid out as more rows of that head.
"""

import torch

from engine.ops.paged_attention.paging import PagedRows, PagedSequence

# Returns (output, logsumexp), which scaled_dot_product_attention keeps to itself.
flash_attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


def paged_attention(q: torch.Tensor, pool: torch.Tensor, rows: PagedRows) -> torch.Tensor:
    parts = [_attend(q[s.begin : s.end], pool, s) for s in rows.sequences]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _attend(q: torch.Tensor, pool: torch.Tensor, sequence: PagedSequence) -> torch.Tensor:
    keys, values = (_gather(pool, part, sequence, q.dtype) for part in (0, 1))
    if q.shape[0] == 1:
        return _attend_all(q, keys, values)[0]
    history = sequence.context_len
    out, weight = _attend_causal(q, keys[:, :, history:], values[:, :, history:])
    if history:
        earlier, earlier_weight = _attend_all(q, keys[:, :, :history], values[:, :, :history])
        out = torch.lerp(out, earlier, torch.sigmoid(earlier_weight - weight)[..., None])
    return out


def _gather(
    pool: torch.Tensor, part: int, sequence: PagedSequence, dtype: torch.dtype
) -> torch.Tensor:
    """[1, KH, tokens, D] of one sequence."""
    pages = pool[:, part].index_select(0, sequence.pages)
    return pages.flatten(0, 1)[: sequence.total_len].transpose(0, 1)[None].to(dtype)


def _attend_all(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Every row sees every key. Returns the output [T, H, D] and its log-sum-exp [T, H]."""
    length, heads, dim = q.shape
    key_heads = keys.shape[1]
    folded = q.view(length, key_heads, -1, dim).permute(1, 0, 2, 3).reshape(1, key_heads, -1, dim)
    out, weight = flash_attention(folded, keys, values)
    out = out.view(key_heads, length, -1, dim).transpose(0, 1)
    weight = weight.view(key_heads, length, -1).transpose(0, 1)
    return out.reshape(length, heads, dim), weight.reshape(length, heads)


def _attend_causal(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Row r sees keys 0..r. Returns the output [T, H, D] and its log-sum-exp [T, H]."""
    group = q.shape[1] // keys.shape[1]
    keys, values = (x.repeat_interleave(group, dim=1) for x in (keys, values))
    out, weight = flash_attention(q.transpose(0, 1)[None], keys, values, is_causal=True)
    return out[0].transpose(0, 1), weight[0].transpose(0, 1)
