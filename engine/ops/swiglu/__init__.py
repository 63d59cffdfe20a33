"""The gate of SwiGLU. Contract and dispatch; knows no model.

    swiglu(x) = silu(gate) * up,    x = [gate | up]

x [T, 2 n] contiguous, any float dtype; result [T, n] contiguous in that dtype. Nothing is mutated.
"""

import torch
import torch.nn.functional as F

from engine.ops.swiglu import native


def swiglu(x: torch.Tensor) -> torch.Tensor:
    if native.serves(x):
        return native.swiglu(x)
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate) * up
