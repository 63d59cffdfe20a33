"""The middle of a Gated DeltaNet layer in one operation, against its three parts in their plainest form; poisoned lanes."""

import pytest
import torch

from engine.ops.causal_conv1d import naive as conv
from engine.ops.gated_delta_net import GatedDeltaNetWeights, gated_delta_net
from engine.ops.gated_delta_rule import naive as rule
from engine.ops.ragged import Ragged
from engine.ops.rms_norm import naive as norm
from tests.ops.batches import LENGTHS, poisoned_but, ragged, scattered

Projected = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
DIMS = [(2, 4, 32, 32), (1, 3, 64, 16), (2, 2, 16, 128), (1, 2, 48, 80)]
"""(key heads, value heads, key dim, value dim); the second of each pair is no power of two somewhere."""


def weights_of(key_heads: int, heads: int, key_dim: int, value_dim: int) -> GatedDeltaNetWeights:
    channels = 2 * key_heads * key_dim + heads * value_dim
    return GatedDeltaNetWeights(
        conv=torch.randn(channels, 4),
        a_log=torch.linspace(-4, 2, heads),
        dt_bias=torch.randn(heads) - 2,
        norm=torch.randn(value_dim),
        eps=1e-6,
        key_dim=key_dim,
        value_dim=value_dim,
    )


def project(tokens: int, weights: GatedDeltaNetWeights) -> Projected:
    """Four parts of one matrix, as a model's projection gives them."""
    heads = weights.a_log.shape[0]
    sizes = (weights.conv.shape[0], heads * weights.value_dim, heads, heads)
    qkv, z, b, a = torch.randn(tokens, sum(sizes)).split_with_sizes(sizes, dim=-1)
    return qkv, z, b, a


def in_parts(
    projected: Projected,
    weights: GatedDeltaNetWeights,
    windows: torch.Tensor,
    states: torch.Tensor,
    rows: Ragged,
) -> torch.Tensor:
    qkv, z, b, a = projected
    qkv = conv.causal_conv1d(qkv, weights.conv, windows, rows)
    keys = (qkv.shape[1] - z.shape[1]) // 2
    q, k, v = qkv.split_with_sizes((keys, keys, z.shape[1]), dim=-1)
    q, k = (x.unflatten(1, (-1, weights.key_dim)) for x in (q, k))
    v, z = (x.unflatten(1, (-1, weights.value_dim)) for x in (v, z))
    out = rule.gated_delta_rule(q, k, v, a, b, weights.a_log, weights.dt_bias, states, rows)
    return norm.gated_rms_norm(out, z, weights.norm, weights.eps).flatten(1)


@pytest.mark.parametrize("dims", DIMS, ids=str)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_against_its_parts(lengths: tuple[int, ...], dims: tuple[int, int, int, int]) -> None:
    lanes = scattered(len(lengths))
    fresh = tuple(i % 3 == 2 for i in range(len(lengths)))
    read = tuple(lane for lane, is_fresh in zip(lanes, fresh, strict=True) if not is_fresh)
    rows = ragged(lengths, lanes, fresh)
    weights = weights_of(*dims)
    _, heads, key_dim, value_dim = dims
    projected = project(sum(lengths), weights)
    windows = poisoned_but(torch.randn(8, weights.conv.shape[0], 3), read)
    states = poisoned_but(torch.randn(8, heads, key_dim, value_dim), read)
    expected_windows, expected_states = windows.clone(), states.clone()
    expected = in_parts(projected, weights, expected_windows, expected_states, rows)
    got = gated_delta_net(projected, weights, windows, states, rows)
    torch.testing.assert_close(got, expected, atol=2e-5, rtol=2e-5)
    torch.testing.assert_close(states, expected_states, atol=5e-6, rtol=1e-5, equal_nan=True)
    torch.testing.assert_close(windows, expected_windows, atol=0, rtol=0, equal_nan=True)


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 50, 99])
def test_state_carries_over_cuts(cut: int, kernels: str) -> None:
    """In C bit for bit, since each token is computed alone; torch works in chunks."""
    weights = weights_of(2, 4, 32, 32)
    projected = project(100, weights)
    outs, pools = [], []
    for spans in ([(0, 100)], [(0, cut), (cut, 100)]):
        windows, states = torch.zeros(1, 256, 3), torch.zeros(1, 4, 32, 32)
        parts = []
        for begin, end in spans:
            part = tuple(x[begin:end] for x in projected)
            rows = ragged((end - begin,), (0,), (begin == 0,))
            parts.append(gated_delta_net(part, weights, windows, states, rows))  # type: ignore[arg-type]
        outs.append(torch.cat(parts))
        pools.append((windows, states))
    near = 0.0 if kernels == "C" else 2e-5
    torch.testing.assert_close(outs[1], outs[0], atol=near, rtol=near)
    for one, two in zip(*pools, strict=True):
        torch.testing.assert_close(two, one, atol=near, rtol=near)
