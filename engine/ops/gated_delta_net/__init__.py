"""What a Gated DeltaNet layer does between its projections, over a packed batch of lanes. Contract and dispatch; knows no model.

    q, k, v = split(causal_conv1d(qkv));   out = gated_rms_norm(gated_delta_rule(q, k, v, a, b), z)

qkv [T, 2 Hk Dk + Hv Dv], z [T, Hv Dv], b, a [T, Hv]: of one float dtype, rows may lie apart; conv [channels, K] of that dtype;
a_log, dt_bias [Hv], norm [Dv] fp32; windows [lanes, channels, K-1] of that dtype, states [lanes, Hv, Dk, Dv] fp32. Returns
[T, Hv Dv]. Mutates `windows` and `states` at the lanes of `rows`. The three operations' own contracts say the rest.
"""

from dataclasses import dataclass

import torch

from engine.ops.causal_conv1d import causal_conv1d
from engine.ops.gated_delta_net import native
from engine.ops.gated_delta_rule import gated_delta_rule
from engine.ops.ragged import Ragged
from engine.ops.rms_norm import gated_rms_norm


@dataclass(frozen=True, slots=True)
class GatedDeltaNetWeights:
    """`key_dim` and `value_dim` are those of one head; the numbers of heads follow from the shapes."""

    conv: torch.Tensor
    a_log: torch.Tensor
    dt_bias: torch.Tensor
    norm: torch.Tensor
    eps: float
    key_dim: int
    value_dim: int


def gated_delta_net(
    projected: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
    weights: GatedDeltaNetWeights,
    windows: torch.Tensor,
    states: torch.Tensor,
    rows: Ragged,
) -> torch.Tensor:
    """`projected` is (qkv, z, b, a)."""
    if native.serves(projected, weights, windows, states):
        return native.gated_delta_net(projected, weights, windows, states, rows)
    qkv, z, b, a = projected
    tokens, values = z.shape
    keys = (qkv.shape[1] - values) // 2
    qkv = causal_conv1d(qkv, weights.conv, windows, rows)
    q, k, v = qkv.split_with_sizes((keys, keys, values), dim=-1)
    q, k = (part.view(tokens, -1, weights.key_dim) for part in (q, k))
    v, z = (part.view(tokens, -1, weights.value_dim) for part in (v, z))
    out = gated_delta_rule(q, k, v, a, b, weights.a_log, weights.dt_bias, states, rows)
    return gated_rms_norm(out, z, weights.norm, weights.eps).flatten(1)
