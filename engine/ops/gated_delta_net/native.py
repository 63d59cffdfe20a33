"""The layer's middle in one pass in C. Knows CPU tensors only."""

from typing import TYPE_CHECKING

import torch

from engine.ops.native import call
from engine.ops.native import serves as is_served
from engine.ops.ragged import Ragged

if TYPE_CHECKING:
    from engine.ops.gated_delta_net import GatedDeltaNetWeights

Projected = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]

VECTOR = 16
MOST_DIM, MOST_TAPS = 256, 8


def serves(
    projected: Projected,
    weights: "GatedDeltaNetWeights",
    windows: torch.Tensor,
    states: torch.Tensor,
) -> bool:
    """The four projections must be columns of one matrix, as the model makes them."""
    stride = projected[0].stride()
    return (
        weights.key_dim % VECTOR == weights.value_dim % VECTOR == 0
        and max(weights.key_dim, weights.value_dim) <= MOST_DIM
        and weights.conv.shape[1] <= MOST_TAPS
        and stride[1] == 1
        and all(each.stride() == stride for each in projected)
        and is_served(*projected, weights.conv, windows, states)
    )


def gated_delta_net(
    projected: Projected,
    weights: "GatedDeltaNetWeights",
    windows: torch.Tensor,
    states: torch.Tensor,
    rows: Ragged,
) -> torch.Tensor:
    qkv, z, b, a = projected
    heads = a.shape[1]
    key_heads = (qkv.shape[1] - z.shape[1]) // (2 * weights.key_dim)
    out = z.new_empty(z.shape)
    call(
        "gated_delta_net",
        *(qkv, z, b, a, qkv.stride(0)),
        *(weights.conv, weights.a_log, weights.dt_bias, weights.norm, weights.eps),
        *(windows, windows.stride(0), states, states.stride(0)),
        *(key_heads, heads, weights.key_dim, weights.value_dim, weights.conv.shape[1]),
        *(rows.table, rows.table.shape[0], out),
        work=4 * weights.key_dim * z.numel(),
    )
    return out
