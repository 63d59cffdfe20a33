"""The norm in C. Knows CPU tensors only."""

import torch

from engine.ops.native import call
from engine.ops.native import serves as is_served


def serves(x: torch.Tensor, weight: torch.Tensor) -> bool:
    return 2 <= x.dim() <= 3 and x.stride(-1) == 1 and is_served(x, weight)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    inner, inner_stride = (x.shape[1], x.stride(1)) if x.dim() == 3 else (1, 0)
    out = x.new_empty(x.shape)
    size = x.shape[-1]
    call(
        "rms_norm",
        x,
        x.shape[0],
        x.stride(0),
        inner,
        inner_stride,
        size,
        weight,
        eps,
        out,
        work=2 * x.numel(),
    )
    return out
