"""The demo model as a trainable module: owns the differentiable forms of its layers; knows nothing of data or text.

Same math and the same parameter names as the published family (hybrid of Gated DeltaNet and gated full
attention, one MTP layer). Shapes: B rows, T tokens, H hidden. Everything is fp32 here; files hold bf16.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CHUNK = 64


@dataclass(frozen=True, slots=True)
class NetConfig:
    """Sizes of the demo model; `text_config` writes them in the published form."""

    vocab: int = 4096
    hidden: int = 128
    layers: int = 8
    inter: int = 256
    interval: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    k_heads: int = 2
    v_heads: int = 4
    gdn_dim: int = 32
    conv: int = 4
    theta: float = 1e7
    rotary: int = 16
    eps: float = 1e-6

    def is_full(self, layer: int) -> bool:
        return (layer + 1) % self.interval == 0


class RmsNorm(torch.autograd.Function):
    """x / rms(x) * scale over the last axis, in fewer passes over memory than its parts would take."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, eps: float) -> Tensor:
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        factor = (norm.square_().div_(x.shape[-1]).add_(eps)).rsqrt_()
        unscaled = x * factor
        ctx.save_for_backward(unscaled, factor, scale)
        return unscaled * scale

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> Any:
        unscaled, factor, scale = ctx.saved_tensors
        by_scale = (grad[0] * unscaled).reshape(-1, scale.shape[0])
        inner = (by_scale @ scale).view(factor.shape) / scale.shape[0]
        back = (grad[0] * scale).addcmul_(unscaled, inner, value=-1).mul_(factor)
        return back, by_scale.sum(0), None


def rms_norm(x: Tensor, scale: Tensor, eps: float) -> Tensor:
    out: Tensor = RmsNorm.apply(x, scale, eps)
    return out


class Norm(nn.Module):
    """RMS norm scaled by 1 + w."""

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, 1 + self.weight, self.eps)


class GatedNorm(nn.Module):
    """Per-head RMS norm scaled by plain w, then times silu(gate)."""

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps) * F.silu(gate)


class ShortConv(torch.autograd.Function):
    """Causal convolution of each channel: x [B, T, C], taps [K, C], newest last -> [B, T, C]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, taps: Tensor) -> Tensor:
        ctx.save_for_backward(x, taps)
        y = x * taps[-1]
        for back in range(1, taps.shape[0]):
            y[:, back:].addcmul_(x[:, :-back], taps[-1 - back])
        return y

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> Any:
        x, taps = ctx.saved_tensors
        g = grad[0]
        dx = g * taps[-1]
        dtaps = torch.empty_like(taps)
        dtaps[-1] = (g * x).sum((0, 1))
        for back in range(1, taps.shape[0]):
            dx[:, :-back].addcmul_(g[:, back:], taps[-1 - back])
            dtaps[-1 - back] = (g[:, back:] * x[:, :-back]).sum((0, 1))
        return dx, dtaps


class Mlp(nn.Module):
    def __init__(self, c: NetConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(c.hidden, c.inter, bias=False)
        self.up_proj = nn.Linear(c.hidden, c.inter, bias=False)
        self.down_proj = nn.Linear(c.inter, c.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


def rope_table(c: NetConfig, positions: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin [T, rotary] of the half-split rotation; the three mRoPE axes are equal for text."""
    inv = c.theta ** (-torch.arange(0, c.rotary, 2, dtype=torch.float32) / c.rotary)
    angle = positions.float()[:, None] * inv
    angle = torch.cat((angle, angle), dim=-1)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates the first `rotary` dims of x [B, heads, T, head_dim]; the rest pass."""
    n = cos.shape[-1]
    r, rest = x[..., :n], x[..., n:]
    half = torch.cat((-r[..., n // 2 :], r[..., : n // 2]), dim=-1)
    return torch.cat((r * cos + half * sin, rest), dim=-1)


class FullAttention(nn.Module):
    """Grouped-query attention whose output is multiplied by a sigmoid gate from the query projection."""

    def __init__(self, c: NetConfig) -> None:
        super().__init__()
        self.c = c
        self.q_proj = nn.Linear(c.hidden, c.heads * c.head_dim * 2, bias=False)
        self.k_proj = nn.Linear(c.hidden, c.kv_heads * c.head_dim, bias=False)
        self.v_proj = nn.Linear(c.hidden, c.kv_heads * c.head_dim, bias=False)
        self.o_proj = nn.Linear(c.heads * c.head_dim, c.hidden, bias=False)
        self.q_norm = Norm(c.head_dim, c.eps)
        self.k_norm = Norm(c.head_dim, c.eps)

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
        c, (b, t, _) = self.c, x.shape
        q, gate = self.q_proj(x).view(b, t, c.heads, 2 * c.head_dim).chunk(2, dim=-1)
        k = self.k_proj(x).view(b, t, c.kv_heads, c.head_dim)
        v = self.v_proj(x).view(b, t, c.kv_heads, c.head_dim).transpose(1, 2)
        q = rotate(self.q_norm(q).transpose(1, 2), *rope)
        k = rotate(self.k_norm(k).transpose(1, 2), *rope)
        k, v = (y.repeat_interleave(c.heads // c.kv_heads, dim=1) for y in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        out: Tensor = self.o_proj((y * torch.sigmoid(gate)).reshape(b, t, -1))
        return out


class UnitLowerInverse(torch.autograd.Function):
    """Inverse of I + A, A strictly lower triangular [..., C, C]; backward is -X^T G X^T."""

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        eye = torch.eye(a.shape[-1]).expand_as(a)
        x = torch.linalg.solve_triangular(a, eye, upper=False, unitriangular=True)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        xt = x.transpose(-1, -2)
        return -(xt @ grad[0] @ xt).tril(-1)


def delta_rule(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    """Gated delta rule from a zero state, in chunks of CHUNK tokens.

    q, k [B, heads, T, dk] (normalised), v [B, heads, T, dv], g = log decay and beta [B, heads, T];
    T a multiple of CHUNK. Per token: S = exp(g) S; S += k (beta (v - S^T k))^T; o = S^T q. Returns [B, heads, T, dv].
    """
    b, h, t, _ = q.shape
    n = t // CHUNK
    q, k, v = (x.reshape(b * h, n, CHUNK, x.shape[-1]) for x in (q, k, v))
    g = g.reshape(b * h, n, CHUNK).cumsum(-1)
    beta = beta.reshape(b * h, n, CHUNK, 1)
    lower = torch.ones(CHUNK, CHUNK, dtype=torch.bool).tril()
    decay = (g[..., :, None] - g[..., None, :]).masked_fill(~lower, -torch.inf).exp()
    kb = k * beta
    inverse = UnitLowerInverse.apply(((kb @ k.transpose(-1, -2)) * decay).tril(-1))
    u = inverse @ (v * beta)
    w = inverse @ (kb * g.exp()[..., None])
    decay = decay * q.shape[-1] ** -0.5
    attn = (q @ k.transpose(-1, -2)) * decay
    last = g[..., -1:]
    k_out = (k * (last - g).exp()[..., None]).transpose(-1, -2)
    carry = last.exp()[..., None]
    state = q.new_zeros(b * h, q.shape[-1], v.shape[-1])
    states, fresh = [], []
    for i in range(n):
        states.append(state)
        new = torch.baddbmm(u[:, i], w[:, i], state, alpha=-1)
        fresh.append(new)
        state = torch.baddbmm(state * carry[:, i], k_out[:, i], new)
    out = (q * (g.exp() * q.shape[-1] ** -0.5)[..., None]) @ torch.stack(
        states, 1
    ) + attn @ torch.stack(fresh, 1)
    return out.reshape(b, h, t, -1)


def unit(x: Tensor) -> Tensor:
    """x over its length, which here is the RMS norm up to a constant factor."""
    d = x.shape[-1]
    return rms_norm(x, x.new_full((d,), d**-0.5), 1e-6 / d)


class GatedDelta(nn.Module):
    """Gated DeltaNet mixer: short convolution, delta rule, gated norm."""

    def __init__(self, c: NetConfig) -> None:
        super().__init__()
        self.c = c
        kd, vd = c.k_heads * c.gdn_dim, c.v_heads * c.gdn_dim
        self.split = (kd, kd, vd)
        self.in_proj_qkv = nn.Linear(c.hidden, 2 * kd + vd, bias=False)
        self.in_proj_z = nn.Linear(c.hidden, vd, bias=False)
        self.in_proj_b = nn.Linear(c.hidden, c.v_heads, bias=False)
        self.in_proj_a = nn.Linear(c.hidden, c.v_heads, bias=False)
        self.conv1d = nn.Conv1d(2 * kd + vd, 2 * kd + vd, c.conv, groups=2 * kd + vd, bias=False)
        self.A_log = nn.Parameter(torch.empty(c.v_heads).uniform_(1, 8).log())
        dt = torch.empty(c.v_heads).uniform_(-6.9, -2.3).exp()
        self.dt_bias = nn.Parameter(dt + torch.log(-torch.expm1(-dt)))
        self.norm = GatedNorm(c.gdn_dim, c.eps)
        self.out_proj = nn.Linear(vd, c.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        c = self.c
        mixed = F.silu(ShortConv.apply(self.in_proj_qkv(x), self.conv1d.weight[:, 0].T))
        q, k, v = (y.unflatten(-1, (-1, c.gdn_dim)) for y in mixed.split(self.split, dim=-1))
        q, k = unit(q), unit(k)
        q, k = (y.repeat_interleave(c.v_heads // c.k_heads, dim=2).transpose(1, 2) for y in (q, k))
        g = -self.A_log.exp() * F.softplus(self.in_proj_a(x) + self.dt_bias)
        beta = torch.sigmoid(self.in_proj_b(x))
        g, beta = g.transpose(1, 2), beta.transpose(1, 2)
        o = delta_rule(q, k, v.transpose(1, 2), g, beta).transpose(1, 2)
        gate = self.in_proj_z(x).unflatten(-1, (-1, c.gdn_dim))
        out: Tensor = self.out_proj(self.norm(o, gate).flatten(-2))
        return out


class Layer(nn.Module):
    def __init__(self, c: NetConfig, full: bool) -> None:
        super().__init__()
        self.input_layernorm = Norm(c.hidden, c.eps)
        self.post_attention_layernorm = Norm(c.hidden, c.eps)
        self.mlp = Mlp(c)
        self.full = full
        if full:
            self.self_attn = FullAttention(c)
        else:
            self.linear_attn = GatedDelta(c)

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
        h = self.input_layernorm(x)
        x = x + (self.self_attn(h, rope) if self.full else self.linear_attn(h))
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Mtp(nn.Module):
    """Predicts token t+2 from the trunk's hidden state at t and the embedding of token t+1."""

    def __init__(self, c: NetConfig) -> None:
        super().__init__()
        self.fc = nn.Linear(2 * c.hidden, c.hidden, bias=False)
        self.pre_fc_norm_embedding = Norm(c.hidden, c.eps)
        self.pre_fc_norm_hidden = Norm(c.hidden, c.eps)
        self.norm = Norm(c.hidden, c.eps)
        self.layers = nn.ModuleList([Layer(c, full=True)])

    def forward(self, hidden: Tensor, next_embed: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
        parts = (self.pre_fc_norm_embedding(next_embed), self.pre_fc_norm_hidden(hidden))
        x = self.layers[0](self.fc(torch.cat(parts, dim=-1)), rope)
        out: Tensor = self.norm(x)
        return out


class Net(nn.Module):
    """Trunk and MTP head over one tied embedding."""

    def __init__(self, c: NetConfig) -> None:
        super().__init__()
        self.c = c
        self.embed_tokens = nn.Embedding(c.vocab, c.hidden)
        self.layers = nn.ModuleList([Layer(c, c.is_full(i)) for i in range(c.layers)])
        self.norm = Norm(c.hidden, c.eps)
        self.mtp = Mtp(c)
        self.apply(init_linear)

    def hidden(self, ids: Tensor) -> Tensor:
        """ids [B, T] -> final-norm hidden states [B, T, H]; works on whole chunks inside."""
        t = ids.shape[1]
        ids = F.pad(ids, (0, -t % CHUNK))
        rope = rope_table(self.c, torch.arange(ids.shape[1]))
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x, rope)
        out: Tensor = self.norm(x)[:, :t]
        return out

    def mtp_hidden(self, ids: Tensor, hidden: Tensor) -> Tensor:
        """Output at t (of T - 1) predicts ids[t + 2]; embeddings and hidden states are taken as given."""
        rope = rope_table(self.c, torch.arange(ids.shape[1] - 1))
        out: Tensor = self.mtp(hidden[:, :-1], self.embed_tokens(ids[:, 1:]).detach(), rope)
        return out

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden @ self.embed_tokens.weight.T

    def published(self) -> dict[str, Tensor]:
        """Parameters under the published tensor names."""
        prefix = "model.language_model."
        items = self.state_dict().items()
        return {n if n.startswith("mtp.") else prefix + n: t for n, t in items}


def init_linear(module: nn.Module) -> None:
    """Token identity starts undisturbed: embeddings large enough, every branch's last product zero."""
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.7 * module.in_features**-0.5)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=0.1)
    elif isinstance(module, FullAttention):
        nn.init.zeros_(module.o_proj.weight)
    elif isinstance(module, GatedDelta):
        nn.init.zeros_(module.out_proj.weight)
        look_back(module)
    elif isinstance(module, Mlp):
        nn.init.zeros_(module.down_proj.weight)


@torch.no_grad()
def look_back(m: GatedDelta) -> None:
    """Starts the mixer as an associative memory: the first half of its heads finds what followed the current token
    before, the second half carries the previous token along. Without it recall takes far longer to be found.
    """
    key, _, value = m.split
    half = m.c.gdn_dim * (m.c.k_heads // 2)
    taps = m.conv1d.weight
    nn.init.normal_(taps, std=0.1)
    now, before = taps[:, 0, -1], taps[:, 0, -2]
    now[:key] += 1
    before[key : key + half] += 1
    now[key + half : 2 * key] += 1
    now[2 * key : 2 * key + value // 2] += 1
    before[2 * key + value // 2 :] += 1
    rows = m.in_proj_qkv.weight
    rows[: 2 * key] *= 2
    rows[key : 2 * key] = rows[:key]


def text_config(c: NetConfig, context: int) -> dict[str, Any]:
    """The `text_config` of config.json for these sizes."""
    return {
        "model_type": "qwen3_5_text",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "attn_output_gate": True,
        "full_attention_interval": c.interval,
        "head_dim": c.head_dim,
        "hidden_act": "silu",
        "hidden_size": c.hidden,
        "initializer_range": 0.02,
        "intermediate_size": c.inter,
        "layer_types": [
            "full_attention" if c.is_full(i) else "linear_attention" for i in range(c.layers)
        ],
        "linear_conv_kernel_dim": c.conv,
        "linear_key_head_dim": c.gdn_dim,
        "linear_num_key_heads": c.k_heads,
        "linear_num_value_heads": c.v_heads,
        "linear_value_head_dim": c.gdn_dim,
        "mamba_ssm_dtype": "float32",
        "max_position_embeddings": context,
        "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False,
        "num_attention_heads": c.heads,
        "num_hidden_layers": c.layers,
        "num_key_value_heads": c.kv_heads,
        "output_gate_type": "swish",
        "rms_norm_eps": c.eps,
        "rope_parameters": {
            "mrope_interleaved": True,
            "mrope_section": [3, 3, 2],
            "partial_rotary_factor": c.rotary / c.head_dim,
            "rope_theta": int(c.theta),
            "rope_type": "default",
        },
        "tie_word_embeddings": True,
        "use_cache": True,
        "vocab_size": c.vocab,
        "dtype": "bfloat16",
    }
