"""Packed matrices and their products with few rows in C; of many, torch's library is better. Knows CPU tensors only.

A matrix [depth, columns] is packed into panels [n, depth, 32] of neighbouring columns, so that it is read in order; as bf16 where
that keeps every value, as it does for published weights, so that half as much is read.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from engine.ops.narrowing import narrowed
from engine.ops.native import call
from engine.ops.native import serves as is_served

PANEL = 32
MOST_ROWS = 32
"""Beyond these, the packed form costs more than its reading saves."""


@dataclass(frozen=True, slots=True)
class Packed:
    """`panels` [ceil(columns / 32), depth, 32] bf16 or fp32, zeros behind the last column."""

    panels: torch.Tensor
    columns: int

    @property
    def depth(self) -> int:
        return self.panels.shape[1]

    @property
    def is_half(self) -> bool:
        return self.panels.dtype is torch.bfloat16


def serves(matrix: torch.Tensor) -> bool:
    return is_served(matrix)


def pack(matrix: torch.Tensor) -> Packed:
    depth, columns = matrix.shape
    padded = F.pad(narrowed(matrix), (0, -columns % PANEL))
    panels = padded.view(depth, -1, PANEL).transpose(0, 1).contiguous()
    return Packed(panels, columns)


def unpack(matrix: Packed) -> torch.Tensor:
    out = torch.empty(matrix.depth, matrix.columns)
    call(
        "unpack",
        matrix.panels,
        matrix.is_half,
        matrix.depth,
        matrix.columns,
        out,
        work=4 * out.numel(),
    )
    return out


def linear(x: torch.Tensor, matrix: Packed, residual: torch.Tensor | None) -> torch.Tensor:
    rows = x.shape[0]
    out = x.new_empty(rows, matrix.columns)
    call(
        *("linear", x, x.stride(0), matrix.panels, matrix.is_half),
        *(residual, rows, matrix.depth, matrix.columns, out),
        work=rows * matrix.depth * matrix.columns,
    )
    return out
