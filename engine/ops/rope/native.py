"""The rotary embedding in C. Knows CPU tensors only."""

import torch

from engine.ops.native import call
from engine.ops.native import serves as is_served


def serves(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> bool:
    return x.stride(-1) == 1 and is_served(x, cos, sin)


def serves_table(positions: torch.Tensor, frequencies: torch.Tensor) -> bool:
    return positions.dim() == 1 and is_served(frequencies)


def rope_table(
    positions: torch.Tensor, frequencies: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    tokens, half = positions.shape[0], frequencies.shape[0]
    cos, sin = (frequencies.new_empty(tokens, half) for _ in range(2))
    call("rope_table", positions, frequencies, tokens, half, cos, sin)
    return cos, sin


def apply_rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    out = x.new_empty(x.shape)
    tokens, heads, size = x.shape
    strides = x.stride()
    half = cos.shape[1]
    call(
        "apply_rope",
        x,
        tokens,
        strides[0],
        heads,
        strides[1],
        size,
        cos,
        sin,
        half,
        out,
        work=2 * out.numel(),
    )
    return out
