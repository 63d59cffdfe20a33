"""Attention over pages with torch's flash kernel and no mask the size of the context. Knows CPU tensors only.

Runs of rows, one sequence at a time:                     Single rows, all sequences at once, page by page:

    keys    history        this step                          s0  [page][page][page][tail]
          ┌──────────────┬─────────┐                          s1  [page][tail]
    rows  │  all visible │ causal  │                          s2  [page][page][tail]
          └──────────────┴─────────┘
    two kernel calls                                          a kernel call a few pages, one for the tails

Either way partial results are joined by their log-sum-exps. Where no mask is needed, the query heads that share a key head are laid
out as more rows of that head.
"""

import torch

from engine.ops.paged_attention import native
from engine.ops.paged_attention.paging import PagedRows, PagedSequence

# Returns (output, logsumexp), which scaled_dot_product_attention keeps to itself.
flash_attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default

GATHERED_TOKENS = 2048
"""Copied out of the pool at a time by single rows: few enough to stay in the cache, and in memory that is already mapped."""


def paged_attention(q: torch.Tensor, pool: torch.Tensor, rows: PagedRows) -> torch.Tensor:
    """Computes in fp32 whatever q and the pool are kept in."""
    dtype, q = q.dtype, q.float()
    if not rows.runs:
        return _attend_singles(q, pool, rows).to(dtype)
    out = torch.empty_like(q)
    for s in rows.runs:
        out[s.begin : s.end] = _attend_run(q[s.begin : s.end], pool, s)
    if len(rows.runs) < len(rows.sequences):
        index = rows.singles.rows
        assert index is not None
        out[index] = _attend_singles(q[index], pool, rows)
    return out.to(dtype)


def _attend_run(q: torch.Tensor, pool: torch.Tensor, sequence: PagedSequence) -> torch.Tensor:
    """Consecutive rows of one sequence: [T, H, D]."""
    keys, values = (
        part.flatten(0, 1).transpose(0, 1)[None]  # [1, KH, tokens, D]
        for part in _gather(pool, sequence.pages)
    )
    history, total = sequence.context_len, sequence.total_len
    out, weight = _attend_causal(q, keys[:, :, history:total], values[:, :, history:total])
    if history:
        earlier, earlier_weight = _attend_all(q, keys[:, :, :history], values[:, :, :history])
        out = torch.lerp(out, earlier, torch.sigmoid(earlier_weight - weight)[..., None])
    return out


def _gather(pool: torch.Tensor, pages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(keys, values) [n, P, KH, D] fp32 of `pages`."""
    keys, values = (pool[:, part].index_select(0, pages).float() for part in (0, 1))
    return keys, values


def _attend_all(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Every row sees every key. Returns the output [T, H, D] and its log-sum-exp [T, H]."""
    length, heads, dim = q.shape
    key_heads = keys.shape[1]
    folded = q.view(length, key_heads, -1, dim).transpose(0, 1).reshape(1, key_heads, -1, dim)
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


def _attend_singles(q: torch.Tensor, pool: torch.Tensor, rows: PagedRows) -> torch.Tensor:
    """Row b of q [B, H, D] is the newest token of the b-th sequence of one row."""
    if native.serves(q, pool):
        return native.attend_singles(q, pool, rows.singles.tables, rows.singles.lengths)
    return _attend_pages(q, pool, [s for s in rows.sequences if s.end - s.begin == 1])


def _attend_pages(
    q: torch.Tensor, pool: torch.Tensor, sequences: list[PagedSequence]
) -> torch.Tensor:
    """Row b of q [B, H, D] is the newest token of sequences[b]. Every page is a batch entry of the kernel."""
    batch, heads, dim = q.shape
    rows = q.view(batch, pool.shape[3], -1, dim)  # [B, KH, G, D]
    parts = [_attend_tails(rows, pool, sequences)]
    owners = lanes = torch.arange(batch)
    full_pages = torch.cat([s.pages[:-1] for s in sequences])
    if full_pages.numel():
        counts = torch.tensor([s.pages.numel() - 1 for s in sequences])
        full_owners = lanes.repeat_interleave(counts)
        owners = torch.cat((lanes, full_owners))
        size = max(1, GATHERED_TOKENS // pool.shape[2])
        for pages, owner in zip(
            torch.split(full_pages, size), torch.split(full_owners, size), strict=True
        ):
            keys, values = (x.transpose(1, 2) for x in _gather(pool, pages))
            parts.append(flash_attention(rows.index_select(0, owner), keys, values))
    outs, weights = (torch.cat(x) for x in zip(*parts, strict=True))
    return _join(outs, weights.view(outs.shape[:-1]), owners, batch).view(batch, heads, dim)


def _attend_tails(
    rows: torch.Tensor, pool: torch.Tensor, sequences: list[PagedSequence]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Each row over its sequence's last page, as far as that is filled."""
    page_tokens = pool.shape[2]
    filled = torch.tensor([(s.total_len - 1) % page_tokens + 1 for s in sequences])
    empty = torch.arange(page_tokens) >= filled[:, None]  # [B, P]
    pages = torch.cat([s.pages[-1:] for s in sequences])
    keys, values = (  # what was never written may be NaN, which no mask stops
        x.masked_fill_(empty[:, :, None, None], 0).transpose(1, 2) for x in _gather(pool, pages)
    )
    mask = rows.new_zeros(empty.shape).masked_fill_(empty, float("-inf"))
    out: tuple[torch.Tensor, torch.Tensor] = flash_attention(
        rows, keys, values, attn_mask=mask[:, None, None].expand(-1, -1, rows.shape[2], -1)
    )
    return out


def _join(
    outs: torch.Tensor, weights: torch.Tensor, owners: torch.Tensor, batch: int
) -> torch.Tensor:
    """Parts [N, KH, G, D] with log-sum-exps [N, KH, G] → [B, KH, G, D]; part n belongs to row owners[n]."""
    index = owners[:, None, None].expand_as(weights)
    largest = weights.new_full((batch, *weights.shape[1:]), float("-inf"))
    largest.scatter_reduce_(0, index, weights, "amax")
    shares = torch.exp(weights - largest.index_select(0, owners))
    total = torch.zeros_like(largest).index_add_(0, owners, shares)
    joined = outs.new_zeros(batch, *outs.shape[1:])
    return joined.index_add_(0, owners, outs * shares[..., None]) / total[..., None]
