"""RMS norms. Contract and dispatch; knows no model.

    rms_norm(x, w)          y = x / sqrt(mean(x^2) + eps) * (1 + w)
    gated_rms_norm(x, z, w) y = x / sqrt(mean(x^2) + eps) * w * silu(z)

x, z [..., n] any float dtype and any strides; w [n], any float dtype. Means and products in fp32, result in x's dtype.
Nothing is mutated. Source: model-and-weights reference, section 2 (ordinary norms; the norm inside Gated DeltaNet).
"""

import torch

from engine.ops.rms_norm import cpu, naive, native


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    if native.serves(x, weight):
        return native.rms_norm(x, weight, eps)
    if x.device.type == "cpu":
        return cpu.rms_norm(x, weight, eps)
    return naive.rms_norm(x, weight, eps)


def gated_rms_norm(
    x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, eps: float
) -> torch.Tensor:
    if x.device.type == "cpu":
        return cpu.gated_rms_norm(x, gate, weight, eps)
    return naive.gated_rms_norm(x, gate, weight, eps)
