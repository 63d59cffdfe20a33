"""Products of rows with a weight matrix. Contract and dispatch; knows no model.

    pack    a matrix [depth, columns] → the form in which products are the fastest on its device
    linear  y = residual + x @ matrix

x [T, depth] (rows may lie apart, their elements not) and the matrix of one float dtype; residual, y [T, columns] contiguous in
that dtype. Nothing is mutated. `pack` may hand back the matrix itself, and keeps every value.
"""

import torch

from engine.ops.linear import native
from engine.ops.linear.native import Packed

__all__ = ["Matrix", "Packed", "linear", "pack"]

Matrix = torch.Tensor | Packed


def pack(matrix: torch.Tensor) -> Matrix:
    return native.pack(matrix) if native.serves(matrix) else matrix


def linear(x: torch.Tensor, matrix: Matrix, residual: torch.Tensor | None = None) -> torch.Tensor:
    if isinstance(matrix, Packed):
        if x.shape[0] <= native.MOST_ROWS:
            return native.linear(x, matrix, residual)
        matrix = native.unpack(matrix)
    return x @ matrix if residual is None else torch.addmm(residual, x, matrix)
