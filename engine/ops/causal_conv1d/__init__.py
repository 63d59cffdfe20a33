"""Depthwise causal convolution with SiLU and a carried window, over a packed batch. Contract and dispatch; knows no model.

    y[t, c] = silu( sum_j weight[c, j] * x[t - (K-1) + j, c] )      x at times before the first row comes from the lane's state

    state  ┌ x[-3] x[-2] x[-1] ┐ x[0] x[1] ...  x[T-1]       K = 4: three columns carried
           └ read ─────────────┘         └ written ──┘

x [T, C] (any row stride), weight [C, K], states [lanes, C, K-1], of one float dtype; y [T, C] in that dtype. Mutates `states` at
the lanes of `rows`, to the last K-1 inputs. Other lanes, and the state of a fresh span, are not read. Sums in fp32.
Source: model-and-weights reference, section 2 (GDN step 2).
"""

import torch

from engine.ops.causal_conv1d import cpu, naive
from engine.ops.ragged import Ragged


def causal_conv1d(
    x: torch.Tensor, weight: torch.Tensor, states: torch.Tensor, rows: Ragged
) -> torch.Tensor:
    if x.device.type == "cpu":
        return cpu.causal_conv1d(x, weight, states, rows)
    return naive.causal_conv1d(x, weight, states, rows)
