"""The rotary embedding as written in the contract. Knows no device."""

import torch


def rope_frequencies(theta: float, rotary_dim: int, device: torch.device) -> torch.Tensor:
    exponents = torch.arange(0, rotary_dim, 2, dtype=torch.float32, device=device)
    return 1.0 / theta ** (exponents / rotary_dim)


def rope_table(
    positions: torch.Tensor, frequencies: torch.Tensor, section: tuple[int, int, int]
) -> tuple[torch.Tensor, torch.Tensor]:
    angles = positions.float()[..., None] * frequencies
    if positions.dim() == 2:
        angles = _interleave(angles, section)
    return angles.cos(), angles.sin()


def _interleave(angles: torch.Tensor, section: tuple[int, int, int]) -> torch.Tensor:
    """[3, T, pairs] → [T, pairs]: pair i takes the angle of its axis."""
    mixed = angles[0].clone()
    for axis in (1, 2):
        pairs = slice(axis, 3 * section[axis], 3)
        mixed[:, pairs] = angles[axis][:, pairs]
    return mixed


def apply_rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = cos.shape[-1]
    first, second, rest = x.split_with_sizes((half, half, x.shape[-1] - 2 * half), dim=-1)
    cos, sin = cos[:, None], sin[:, None]
    rotated = (first * cos - second * sin, second * cos + first * sin)
    return torch.cat((*(part.to(x.dtype) for part in rotated), rest), dim=-1)
