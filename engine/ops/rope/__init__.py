"""Partial rotary embedding with interleaved multi-axis positions. Contract; knows no model.

    rope_table   angle[t, i] = position[axis(i), t] * theta^(-2i / rotary_dim),  i < rotary_dim / 2;  returns cos, sin
                 axis(i) = height if i % 3 == 1 and i < 3 * section[1], width if i % 3 == 2 and i < 3 * section[2], else time
    apply_rope   (a, b) = halves of x[..., :rotary_dim];  y = [a cos - b sin | b cos + a sin | x[..., rotary_dim:]]

positions [T] (text: all axes equal) or [3, T], integers; cos, sin [T, rotary_dim / 2] fp32; x [T, heads, head_dim], any float
dtype and strides, result contiguous in x's dtype. Nothing is mutated. Source: model-and-weights reference, section 2.
"""

from engine.ops.rope.naive import apply_rope, rope_table

__all__ = ["apply_rope", "rope_table"]
