"""The gated delta rule with its gates, over a packed batch of lanes. Contract and dispatch; knows no model.

For each value head h (key head h // (Hv / Hk)) and each token of a lane, all in fp32:

    q, k = q / sqrt(|q|^2 + 1e-6) / sqrt(Dk),  k / sqrt(|k|^2 + 1e-6)
    decay = exp(-exp(a_log[h]) * softplus(a + dt_bias[h])),   beta = sigmoid(b)
    S = decay * S;   S = S + k ⊗ (beta * (v - S^T k));   out = S^T q

q, k [T, Hk, Dk], v [T, Hv, Dv], a, b [T, Hv] of one float dtype, any row stride; a_log, dt_bias [Hv] fp32; states
[lanes, Hv, Dk, Dv] fp32. Returns [T, Hv, Dv] in v's dtype. Mutates `states` at the lanes of `rows`. Other lanes, and the state of a
fresh span, are not read. Source: model-and-weights reference, section 2 (GDN steps 3 to 5).
"""

import torch

from engine.ops.gated_delta_rule import cpu, naive
from engine.ops.ragged import Ragged


def gated_delta_rule(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    states: torch.Tensor,
    rows: Ragged,
) -> torch.Tensor:
    if q.device.type == "cpu":
        return cpu.gated_delta_rule(q, k, v, a, b, a_log, dt_bias, states, rows)
    return naive.gated_delta_rule(q, k, v, a, b, a_log, dt_bias, states, rows)
