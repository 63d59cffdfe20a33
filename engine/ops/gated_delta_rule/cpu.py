"""The gated delta rule: steps of a whole batch of lanes at once, longer runs in chunks. Knows CPU tensors only.

Within a chunk of C tokens, with G_i the sum of log decays up to i and S the state before it, the errors
e_i = beta_i (v_i - S_i^T k_i) solve a unit lower triangular system:

    (I + L) e = beta v - beta exp(G) k S,      L_ij = beta_i (k_i · k_j) exp(G_i - G_j)   for j < i
    out_i = exp(G_i) q_i S + sum_{j <= i} (q_i · k_j) exp(G_i - G_j) e_j
    S' = exp(G_C) S + sum_j exp(G_C - G_j) k_j ⊗ e_j

The systems of all chunks are solved together; only the last three products go chunk by chunk. No exponent is positive.
Source: the UT transform of "Parallelizing Linear Transformers with the Delta Rule" (Yang et al., 2024), with decay.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F

from engine.ops.gated_delta_rule.naive import gates, unit
from engine.ops.ragged import Ragged, Span

CHUNK = 64


class Tokens(NamedTuple):
    """q, k [T, Hk, Dk], v [T, Hv, Dv], log_decay, beta [T, Hv]: gated, fp32."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    log_decay: torch.Tensor
    beta: torch.Tensor


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
    tokens = Tokens(q, k, v.float(), *gates(a, b, a_log, dt_bias))
    if not rows.spans:
        return _step(tokens, states, rows.step_lanes).to(v.dtype)
    out = torch.empty(v.shape, dtype=v.dtype)
    for span in rows.spans:
        part = Tokens(*(x[span.begin : span.end] for x in tokens))
        out[span.begin : span.end] = _run(part, states, span)
    if rows.step_rows is not None and rows.has_steps:
        steps = Tokens(*(x[rows.step_rows] for x in tokens))
        out[rows.step_rows] = _step(steps, states, rows.step_lanes).to(v.dtype)
    return out


def _step(tokens: Tokens, states: torch.Tensor, lanes: torch.Tensor | slice) -> torch.Tensor:
    """One token for each of `lanes`: [B, Hv, Dv]. The state is read once for both products with it."""
    batch, heads, value_dim = tokens.v.shape
    group = heads // tokens.k.shape[1]
    qk = unit(torch.stack((tokens.q, tokens.k), dim=2)).repeat_interleave(group, dim=1)
    qk = qk.flatten(0, 1)  # [B Hv, 2, Dk]
    query, key = qk[:, :1], qk[:, 1:]
    state: torch.Tensor = states[lanes].flatten(0, 1)
    decay, beta = tokens.log_decay.exp().view(-1, 1, 1), tokens.beta.reshape(-1, 1, 1)
    seen = torch.bmm(qk, state) * decay
    error = beta * (tokens.v.reshape(-1, 1, value_dim) - seen[:, 1:])
    state = (state * decay).baddbmm_(key.transpose(1, 2), error)
    states[lanes] = state.view(batch, heads, -1, value_dim)
    own = torch.bmm(query, key.transpose(1, 2))
    out = (seen[:, :1] + own * error) / math.sqrt(key.shape[-1])
    return out.reshape(batch, heads, value_dim)


def _run(tokens: Tokens, states: torch.Tensor, span: Span) -> torch.Tensor:
    """Consecutive tokens of one lane: [T, Hv, Dv]."""
    length, heads, value_dim = tokens.v.shape
    group = heads // tokens.k.shape[1]
    q, k = unit(tokens.q) / math.sqrt(tokens.q.shape[-1]), unit(tokens.k)
    q, k, v, log_decay, beta = (
        _chunk(x, min(CHUNK, length)) for x in (q, k, tokens.v, tokens.log_decay, tokens.beta)
    )
    pair, total = _decays(log_decay)
    attention = (q @ k.transpose(-1, -2)).repeat_interleave(group, dim=0) * pair
    system = (k @ k.transpose(-1, -2)).repeat_interleave(group, dim=0) * pair * beta
    q, k = (x.repeat_interleave(group, dim=0) for x in (q, k))
    right = torch.cat((v * beta, k * (beta * total.exp())), dim=-1)
    solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    end = total[:, :, -1:]
    state = states[span.lane]
    out, state = _scan(
        errors=solved[..., :value_dim],
        reads=torch.cat((solved[..., value_dim:], q * total.exp()), dim=2),
        attention=attention,
        keys=k * (end - total).exp(),
        decay=end.exp(),
        state=torch.zeros_like(state) if span.fresh else state,
    )
    states[span.lane] = state
    return out.flatten(1, 2)[:, :length].transpose(0, 1)


def _chunk(x: torch.Tensor, size: int) -> torch.Tensor:
    """[T, H, D] or [T, H] → [H, chunks, size, D or 1], padded with zeros (no decay, no update)."""
    x = x if x.dim() == 3 else x[..., None]
    length, heads, dim = x.shape
    padded = F.pad(x, (0, 0, 0, 0, 0, -length % size))
    return padded.transpose(0, 1).reshape(heads, -1, size, dim)


def _decays(log_decay: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """From [H, N, C, 1]: exp(G_i - G_j) for j <= i, else 0 [H, N, C, C]; and G [H, N, C, 1]."""
    total = log_decay.cumsum(dim=2)
    difference = total - total.transpose(-1, -2)
    size = log_decay.shape[2]
    later = torch.ones(size, size, dtype=torch.bool).triu(1)
    return difference.masked_fill_(later, float("-inf")).exp_(), total


def _scan(
    errors: torch.Tensor,
    reads: torch.Tensor,
    attention: torch.Tensor,
    keys: torch.Tensor,
    decay: torch.Tensor,
    state: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Carries `state` [H, Dk, Dv] over the chunks; `reads` [H, N, 2C, Dk] are the rows that meet it. Returns (out, state)."""
    size = errors.shape[2]
    out = torch.empty_like(errors)
    for n in range(errors.shape[1]):
        met = torch.bmm(reads[:, n], state)
        error = errors[:, n] - met[:, :size]
        out[:, n] = torch.baddbmm(met[:, size:], attention[:, n], error)
        state = torch.baddbmm(state * decay[:, n], keys[:, n].transpose(1, 2), error)
    return out, state
