"""The causal convolution, one sequence at a time. Knows no device."""

import torch
import torch.nn.functional as F

from engine.ops.ragged import Ragged, Span


def causal_conv1d(
    x: torch.Tensor, weight: torch.Tensor, states: torch.Tensor, rows: Ragged
) -> torch.Tensor:
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    for span in rows.sequences:
        out[span.begin : span.end] = _convolve(x[span.begin : span.end], weight, states, span)
    return out


def _convolve(
    x: torch.Tensor, weight: torch.Tensor, states: torch.Tensor, span: Span
) -> torch.Tensor:
    state = torch.zeros_like(states[span.lane]) if span.fresh else states[span.lane]
    window = torch.cat((state, x.T), dim=1)
    states[span.lane] = window[:, window.shape[1] - state.shape[1] :]
    taps = window.float().unfold(1, weight.shape[1], 1)  # [C, T, K]
    return F.silu((taps * weight.float()[:, None]).sum(-1)).T.to(x.dtype)
