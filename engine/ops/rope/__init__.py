"""Partial rotary embedding with interleaved multi-axis positions. Contract; knows no model.

    frequencies  f[i] = theta^(-2i / rotary_dim),  i < rotary_dim / 2
    rope_table   angle[t, i] = position[axis(i), t] * f[i];  returns cos, sin
                 axis(i) = height if i % 3 == 1 and i < 3 * section[1], width if i % 3 == 2 and i < 3 * section[2], else time
    apply_rope   (a, b) = halves of x[..., :rotary_dim];  y = [a cos - b sin | b cos + a sin | x[..., rotary_dim:]]

positions [T] (text: all axes equal) or [3, T], integers; cos, sin [T, rotary_dim / 2] fp32; x [T, heads, head_dim], any float
dtype and strides, result contiguous in x's dtype. Nothing is mutated. Source: model-and-weights reference, section 2.
"""

import torch

from engine.ops.rope import naive, native
from engine.ops.rope.naive import rope_frequencies

__all__ = ["apply_rope", "rope_frequencies", "rope_table"]


def rope_table(
    positions: torch.Tensor, frequencies: torch.Tensor, section: tuple[int, int, int]
) -> tuple[torch.Tensor, torch.Tensor]:
    if native.serves_table(positions, frequencies):
        return native.rope_table(positions, frequencies)
    return naive.rope_table(positions, frequencies, section)


def apply_rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    if native.serves(x, cos, sin):
        return native.apply_rope(x, cos, sin)
    return naive.apply_rope(x, cos, sin)
