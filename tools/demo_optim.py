"""The optimizer of the demo model: Muon for matrices, Adam for the rest; knows nothing of the model's layers."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor, nn

NS = (3.4445, -4.7750, 2.0315)


def orthogonalise(g: Tensor, steps: int = 5) -> Tensor:
    """Nearest semi-orthogonal matrices of a stack [N, rows <= cols, cols], by quintic Newton-Schulz."""
    a, b, c = NS
    x = g / (g.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        s = x @ x.transpose(-1, -2)
        x = a * x + (b * s + c * s @ s) @ x
    return x


class Optimizer:
    """Every step: `grads` are already averaged over the workers; `rank` of `world` does its share of the matrices."""

    def __init__(self, params: dict[str, nn.Parameter], rank: int, world: int) -> None:
        self.params = params
        self.state: dict[str, dict[str, Tensor]] = {n: {} for n in params}
        self.count = 0
        self.rank, self.world = rank, world
        self.groups: dict[tuple[int, ...], list[str]] = defaultdict(list)
        for n, p in params.items():
            if p.ndim == 2 and min(p.shape) > 8 and "embed" not in n:
                self.groups[tuple(sorted(p.shape))].append(n)
        self.matrices = {n for names in self.groups.values() for n in names}

    @torch.no_grad()
    def step(self, lr: float, decay: float = 0.05) -> None:
        self.count += 1
        updates = self.muon()
        if self.world > 1:
            flat = torch.cat([updates[n].reshape(-1) for n in sorted(self.matrices)])
            torch.distributed.all_reduce(flat)
            sizes = [self.params[n].numel() for n in sorted(self.matrices)]
            updates = dict(zip(sorted(self.matrices), flat.split(sizes), strict=True))
        for n, p in self.params.items():
            if n in self.matrices:
                p.mul_(1 - lr * decay).add_(
                    updates[n].view_as(p), alpha=-lr * 0.2 * max(p.shape) ** 0.5
                )
            else:
                p.add_(self.adam(n, p), alpha=-lr)

    def muon(self) -> dict[str, Tensor]:
        out: dict[str, Tensor] = {}
        for names in self.groups.values():
            mine = names[self.rank :: self.world]
            for n in names:
                p = self.params[n]
                assert p.grad is not None
                m = self.state[n].setdefault("m", torch.zeros_like(p))
                m.lerp_(p.grad, 0.05)
                out[n] = torch.zeros_like(p)
            if not mine:
                continue
            wide = [self.nesterov(n) for n in mine]
            for n, x in zip(mine, orthogonalise(torch.stack(wide)), strict=True):
                out[n] = (
                    x if self.params[n].shape[0] <= self.params[n].shape[1] else x.T.contiguous()
                )
        return out

    def nesterov(self, n: str) -> Tensor:
        p = self.params[n]
        assert p.grad is not None
        g = p.grad.lerp(self.state[n]["m"], 0.95)
        return g if p.shape[0] <= p.shape[1] else g.T

    def adam(self, n: str, p: Tensor) -> Tensor:
        assert p.grad is not None
        s = self.state[n]
        m = s.setdefault("m", torch.zeros_like(p)).lerp_(p.grad, 0.1)
        v = s.setdefault("v", torch.zeros_like(p)).lerp_(p.grad.square(), 0.05)
        m_hat, v_hat = m / (1 - 0.9**self.count), v / (1 - 0.95**self.count)
        return m_hat / (v_hat.sqrt() + 1e-8)

    def state_dict(self) -> dict[str, Any]:
        return {"state": self.state, "count": self.count}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self.state, self.count = saved["state"], saved["count"]
