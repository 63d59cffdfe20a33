"""The gated delta rule, one sequence and one token at a time. Knows no device."""

import math

import torch
import torch.nn.functional as F

from engine.ops.ragged import Ragged


def gated_delta_rule(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    states: torch.Tensor,
    rows: Ragged,
) -> torch.Tensor:
    group = v.shape[1] // k.shape[1]
    q = (unit(q) / math.sqrt(q.shape[-1])).repeat_interleave(group, dim=1)
    k = unit(k).repeat_interleave(group, dim=1)
    log_decay, beta = gates(a, b, a_log, dt_bias)
    out = torch.empty(v.shape, dtype=v.dtype, device=v.device)
    for sequence in rows.sequences:
        state = states[sequence.lane]
        state = torch.zeros_like(state) if sequence.fresh else state
        for t in range(sequence.begin, sequence.end):
            state = state * log_decay[t].exp()[:, None, None]
            seen = torch.einsum("hkv,hk->hv", state, k[t])
            error = beta[t, :, None] * (v[t].float() - seen)
            state = state + torch.einsum("hk,hv->hkv", k[t], error)
            out[t] = torch.einsum("hkv,hk->hv", state, q[t]).to(v.dtype)
        states[sequence.lane] = state
    return out


def unit(x: torch.Tensor) -> torch.Tensor:
    """x / |x| over the last dimension, fp32."""
    x = x.float()
    return x * torch.rsqrt(x.square().sum(dim=-1, keepdim=True) + 1e-6)


def gates(
    a: torch.Tensor, b: torch.Tensor, a_log: torch.Tensor, dt_bias: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """(log decay <= 0, beta in 0..1), both [T, Hv] fp32."""
    return -a_log.exp() * F.softplus(a.float() + dt_bias), torch.sigmoid(b.float())
