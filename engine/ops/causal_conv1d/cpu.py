"""The causal convolution as K shifted multiply-adds, and all steps of a batch at once. Knows CPU tensors only."""

import torch
import torch.nn.functional as F

from engine.ops.ragged import Ragged, Span


def causal_conv1d(
    x: torch.Tensor, weight: torch.Tensor, states: torch.Tensor, rows: Ragged
) -> torch.Tensor:
    if not rows.spans:
        return _step(x, weight, states, rows.step_lanes)
    out = torch.empty(x.shape, dtype=x.dtype)
    for span in rows.spans:
        out[span.begin : span.end] = _convolve(x[span.begin : span.end], weight, states, span)
    if rows.step_rows is not None and rows.has_steps:
        out[rows.step_rows] = _step(x[rows.step_rows], weight, states, rows.step_lanes)
    return out


def _step(
    x: torch.Tensor, weight: torch.Tensor, states: torch.Tensor, lanes: torch.Tensor | slice
) -> torch.Tensor:
    """x [B, C]: one token for each of `lanes`."""
    window = torch.cat((states[lanes], x[:, :, None]), dim=2)
    states[lanes] = window[:, :, 1:]
    return F.silu((window.float() * weight.float()).sum(-1)).to(x.dtype)


def _convolve(
    x: torch.Tensor, weight: torch.Tensor, states: torch.Tensor, span: Span
) -> torch.Tensor:
    """x [T, C]: consecutive tokens of one lane."""
    columns = states.shape[2]
    state = states.new_zeros(columns, x.shape[1]) if span.fresh else states[span.lane].T
    window = torch.cat((state, x))
    states[span.lane] = window[len(window) - columns :].T
    window, taps = window.float(), weight.float().T
    total = window[: len(x)] * taps[0]
    for j in range(1, columns + 1):
        total.addcmul_(window[j : j + len(x)], taps[j])
    return F.silu(total, inplace=True).to(x.dtype)
