"""Parts that hold weights and are the same in every layer. They name the published tensors they hold; they read no files."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from engine.models.config import ModelConfig
from engine.ops.linear import Matrix, linear, pack
from engine.ops.rms_norm import rms_norm
from engine.ops.swiglu import swiglu

NamedTensors = Iterator[tuple[str, torch.Tensor]]
"""(published name, the memory to fill). Memory is a view where several published tensors share one."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where weights live and in what dtype the model computes."""

    device: torch.device
    dtype: torch.dtype

    def empty(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype or self.dtype, device=self.device)


class Projection:
    """x [T, in] → one [T, out] for each part. The published matrices [out, in] are laid side by side, so that one product serves
    them all; `weight` is [in, out] until it is filled and packed.
    """

    def __init__(self, in_features: int, parts: Mapping[str, int], place: Placement) -> None:
        self.names = tuple(parts)
        self.sizes = tuple(parts.values())
        self.weight = place.empty(in_features, sum(self.sizes))
        self.matrix: Matrix = self.weight

    def __call__(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(linear(x, self.matrix).split_with_sizes(self.sizes, dim=-1))

    def joined(self, x: torch.Tensor) -> torch.Tensor:
        """All parts as one [T, sum of outs]."""
        return linear(x, self.matrix)

    def onto(self, residual: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """residual + the only part."""
        return linear(x, self.matrix, residual)

    def pack(self) -> None:
        """Brings the filled weight to the form that products read."""
        self.matrix = pack(self.weight)
        del self.weight

    def tensors(self, prefix: str) -> NamedTensors:
        views = self.weight.T.split_with_sizes(self.sizes)
        return zip((f"{prefix}{name}.weight" for name in self.names), views, strict=True)


class Norm:
    """RMS norm by (1 + w)."""

    def __init__(self, size: int, eps: float, place: Placement) -> None:
        self.weight = place.empty(size, dtype=torch.float32)
        self.eps = eps

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, self.weight, self.eps)


class Mlp:
    """SwiGLU: residual + down(silu(gate(x)) * up(x))."""

    def __init__(self, config: ModelConfig, place: Placement) -> None:
        hidden, inner = config.hidden_size, config.intermediate_size
        self.gate_up = Projection(hidden, {"gate_proj": inner, "up_proj": inner}, place)
        self.down = Projection(inner, {"down_proj": hidden}, place)

    def __call__(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return self.down.onto(residual, swiglu(self.gate_up.joined(x)))

    def pack(self) -> None:
        self.gate_up.pack()
        self.down.pack()

    def tensors(self, prefix: str) -> NamedTensors:
        yield from self.gate_up.tensors(prefix)
        yield from self.down.tensors(prefix)
