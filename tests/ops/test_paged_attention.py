"""Attention over pages: the CPU form and the naive one against torch's own attention, ragged, in scattered and poisoned pages."""

import pytest
import torch
import torch.nn.functional as F

from engine.ops.paged_attention import PagedRows, naive, page_rows, paged_attention, store_kv
from tests.ops.batches import NAN

HEADS, KEY_HEADS, DIM = 6, 2, 16
BATCHES = [
    # (rows of this step, tokens already there) of each sequence
    [(1, 0)],
    [(1, 63)],
    [(1, 64)],
    [(1, 65)],
    [(64, 0)],
    [(65, 0)],
    [(63, 130)],
    [(130, 1)],
    [(1, 5), (1, 64), (1, 200), (1, 15)],
    [(1, 130), (65, 63), (1, 0), (3, 16), (1, 1)],
]


class Case:
    """Contiguous keys and values of each sequence, and the same in a pool of which all else is NaN."""

    def __init__(self, batch: list[tuple[int, int]], page_tokens: int, key_heads: int) -> None:
        self.batch = batch
        lengths = [rows + context for rows, context in batch]
        self.keys, self.values = (
            [torch.randn(length, key_heads, DIM) for length in lengths] for _ in range(2)
        )
        self.q = torch.randn(sum(rows for rows, _ in batch), HEADS, DIM)
        counts = [-(-length // page_tokens) for length in lengths]
        whole = torch.full((sum(counts) + 3, 3, 2, page_tokens, key_heads, DIM), NAN)
        self.pool = whole[:, 1]  # one layer of three
        self.tables = list(torch.randperm(sum(counts)).split(counts))
        self.page_tokens = page_tokens
        starts = [sum(rows for rows, _ in batch[:i]) for i in range(len(batch) + 1)]
        self.starts = tuple(starts)
        for s, (_, context) in enumerate(batch):
            if context:
                rows = page_rows((0, context), (0,), (self.tables[s],), page_tokens)
                store_kv(self.keys[s][:context], self.values[s][:context], self.pool, rows)

    @property
    def rows(self) -> PagedRows:
        context = tuple(context for _, context in self.batch)
        return page_rows(self.starts, context, self.tables, self.page_tokens)

    def store_step(self) -> None:
        keys, values = (
            torch.cat([x[context:] for x, (_, context) in zip(parts, self.batch, strict=True)])
            for parts in (self.keys, self.values)
        )
        store_kv(keys, values, self.pool, self.rows)

    def expected(self) -> torch.Tensor:
        outs = []
        for s, (rows, context) in enumerate(self.batch):
            q = self.q[self.starts[s] : self.starts[s + 1]].transpose(0, 1)
            group = HEADS // self.keys[s].shape[1]
            k, v = (
                x[s].repeat_interleave(group, 1).transpose(0, 1) for x in (self.keys, self.values)
            )
            visible = torch.ones(rows, rows + context, dtype=torch.bool).tril(context)
            outs.append(F.scaled_dot_product_attention(q, k, v, attn_mask=visible).transpose(0, 1))
        return torch.cat(outs)


@pytest.mark.parametrize("key_heads", [1, 2, 6])
@pytest.mark.parametrize("page_tokens", [16, 64])
@pytest.mark.parametrize("batch", BATCHES, ids=str)
def test_against_torch(batch: list[tuple[int, int]], page_tokens: int, key_heads: int) -> None:
    case = Case(batch, page_tokens, key_heads)
    case.store_step()
    for implementation in (paged_attention, naive.paged_attention):
        got = implementation(case.q, case.pool, case.rows)
        torch.testing.assert_close(got, case.expected(), atol=2e-6, rtol=1e-5)


def test_many_segments() -> None:
    """More full pages than are gathered at a time, over several sequences."""
    case = Case([(1, 3000), (1, 10), (1, 2500)], 16, KEY_HEADS)
    case.store_step()
    got = paged_attention(case.q, case.pool, case.rows)
    torch.testing.assert_close(got, case.expected(), atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("scale", [1e-3, 30.0])
def test_parts_of_very_different_weight(scale: float) -> None:
    """History and step joined where one of them has all the weight."""
    case = Case([(1, 200), (70, 100), (1, 64)], 16, KEY_HEADS)
    case.q *= scale
    case.keys[1][:100] *= scale
    for s, (rows, context) in enumerate(case.batch):
        all_rows = page_rows((0, rows + context), (0,), (case.tables[s],), 16)
        store_kv(case.keys[s], case.values[s], case.pool, all_rows)
    got = paged_attention(case.q, case.pool, case.rows)
    torch.testing.assert_close(got, case.expected(), atol=2e-5, rtol=1e-4)


def test_store_writes_only_its_rows() -> None:
    case = Case([(3, 14), (1, 20)], 16, KEY_HEADS)
    before = case.pool.clone()
    case.store_step()
    changed = ~(case.pool.eq(before) | (case.pool.isnan() & before.isnan()))
    assert changed.flatten(2).any(-1).sum() == 2 * (2 + 1)  # keys and values of three pages
    assert changed.sum() == 2 * 4 * KEY_HEADS * DIM
    assert torch.equal(case.pool[case.tables[0][1], 0, 0], case.keys[0][16])
    assert torch.equal(case.pool[case.tables[1][1], 1, 4], case.values[1][20])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_smaller_dtype_in_the_pool(dtype: torch.dtype) -> None:
    case = Case([(5, 40), (1, 33)], 16, KEY_HEADS)
    case.store_step()
    exact = case.expected()
    case.pool = case.pool.bfloat16()
    for implementation in (paged_attention, naive.paged_attention):
        got = implementation(case.q.to(dtype), case.pool, case.rows)
        assert got.dtype == dtype
        torch.testing.assert_close(got.float(), exact, atol=0.05, rtol=0)


def test_longer_tables_are_cut() -> None:
    case = Case([(2, 14), (1, 3)], 16, KEY_HEADS)
    case.store_step()
    case.tables = [torch.cat((table, torch.tensor([10**9]))) for table in case.tables]
    got = paged_attention(case.q, case.pool, case.rows)
    torch.testing.assert_close(got, case.expected(), atol=2e-6, rtol=1e-5)


def test_a_short_table_is_caught() -> None:
    with pytest.raises(AssertionError, match="shorter"):
        page_rows((0, 2), (15,), (torch.tensor([0]),), 16)
