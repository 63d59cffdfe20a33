"""The gate on attention's output. Contract and dispatch; knows no model.

    output_gate(x, gate) = x * sigmoid(gate)

x [T, H, D] contiguous, gate [T, H, D] (its elements together, heads and rows may lie apart), any float dtype; result contiguous in
that dtype. Nothing is mutated.
"""

import torch

from engine.ops.output_gate import native


def output_gate(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    if native.serves(x, gate):
        return native.output_gate(x, gate)
    return x * torch.sigmoid(gate)
