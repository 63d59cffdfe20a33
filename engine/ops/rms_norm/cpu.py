"""The norms in few torch calls. Knows CPU tensors only."""

import torch
import torch.nn.functional as F


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    normalized = F.rms_norm(x.float(), weight.shape, None, eps)
    return torch.addcmul(normalized, normalized, weight.float()).to(x.dtype)


def gated_rms_norm(
    x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, eps: float
) -> torch.Tensor:
    normalized = F.rms_norm(x.float(), weight.shape, weight.float(), eps)
    return normalized.mul_(F.silu(gate.float())).to(x.dtype)
