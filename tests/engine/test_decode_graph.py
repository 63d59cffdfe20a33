"""The recorded decode step against the plain forward: the same bits in logits and in all state, for any lanes; what can't be recorded."""

import dataclasses
from pathlib import Path

import pytest
import torch

from engine.models.batch import CachePools, ForwardBatch, allocate_pools
from engine.models.graph import DecodeGraph, Row
from engine.models.qwen3_5 import Qwen35Model
from engine.weights import load_model
from tests.engine.tiny_weights import write_tiny_weights

CPU = torch.device("cpu")
LANES, PAGES, PAGE_TOKENS = 5, 40, 16
VOCAB_LIMIT = 40


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Qwen35Model:
    directory: Path = tmp_path_factory.mktemp("weights")
    write_tiny_weights(directory)
    return load_model(directory, CPU, torch.float32)


def random_pools(model: Qwen35Model, kv_dtype: torch.dtype = torch.float32) -> CachePools:
    torch.manual_seed(3)
    pools = allocate_pools(model.config, PAGES, LANES, PAGE_TOKENS, torch.float32, CPU, kv_dtype)
    for pool in (pools.kv, pools.recurrent, pools.conv):
        pool.copy_(0.1 * torch.randn(pool.shape))
    return pools


def copied(pools: CachePools) -> CachePools:
    return dataclasses.replace(
        pools, kv=pools.kv.clone(), recurrent=pools.recurrent.clone(), conv=pools.conv.clone()
    )


@pytest.mark.parametrize("lanes", [(0,), (3,), (1, 2), (4, 0, 2), (2, 4, 0, 1, 3)], ids=str)
def test_the_same_bits_as_the_forward(model: Qwen35Model, lanes: tuple[int, ...]) -> None:
    pools = random_pools(model)
    others = copied(pools)
    graph = DecodeGraph(model, pools, len(lanes), VOCAB_LIMIT)
    tables = [torch.randperm(8) + 8 * lane for lane in lanes]
    contexts = [torch.randint(1, 100, ()).item() for _ in lanes]
    for step in range(20):  # over ends of pages
        lengths = [int(length) + step for length in contexts]
        ids = [(7 * step + lane) % 50 for lane in lanes]
        places = zip(ids, lengths, lanes, tables, strict=True)
        graph.begin(
            [
                Row(token, length, lane, int(table[length // PAGE_TOKENS]), table.data_ptr())
                for token, length, lane, table in places
            ]
        )
        got = graph.end()
        expected = model.forward(
            ForwardBatch(
                token_ids=torch.tensor(ids),
                positions=torch.tensor(lengths),
                starts=tuple(range(len(lanes) + 1)),
                context_lens=tuple(lengths),
                lanes=lanes,
                page_tables=tuple(tables),
                logit_rows=torch.arange(len(lanes)),
            ),
            others,
        )
        assert torch.equal(got, expected)
        assert torch.equal(graph.likeliest, expected[:, :VOCAB_LIMIT].argmax(dim=-1))
        assert torch.equal(pools.kv, others.kv)
        assert torch.equal(pools.recurrent, others.recurrent)
        assert torch.equal(pools.conv, others.conv)


def test_recording_touches_no_state(model: Qwen35Model) -> None:
    pools = random_pools(model)
    before = copied(pools)
    DecodeGraph(model, pools, 3, VOCAB_LIMIT)
    assert torch.equal(pools.kv, before.kv)
    assert torch.equal(pools.recurrent, before.recurrent)
    assert torch.equal(pools.conv, before.conv)


def test_a_pool_without_kernels_is_not_recorded(model: Qwen35Model) -> None:
    assert model.recorded(random_pools(model, torch.bfloat16), 1, VOCAB_LIMIT) is None
    assert model.recorded(random_pools(model), 1, VOCAB_LIMIT) is not None
