"""A tiny random model under published tensor names, written to a directory. Knows shapes and names from the published layout only."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

TEXT_CONFIG: dict[str, Any] = {
    "model_type": "qwen3_5_text",
    "hidden_size": 64,
    "intermediate_size": 112,
    "vocab_size": 320,
    "num_hidden_layers": 8,
    "full_attention_interval": 4,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "attn_output_gate": True,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10_000_000,
        "partial_rotary_factor": 0.25,
        "mrope_section": [2, 1, 1],
        "mrope_interleaved": True,
    },
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 48,
    "linear_conv_kernel_dim": 4,
    "mtp_num_hidden_layers": 1,
    "eos_token_id": 2,
}
PREFIX = "model.language_model."


def published_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Every tensor of the published layout (full names) for `config`, the head for multi-token prediction included."""
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    shapes: dict[str, tuple[int, ...]] = {
        f"{PREFIX}embed_tokens.weight": (vocab, hidden),
        f"{PREFIX}norm.weight": (hidden,),
        "lm_head.weight": (vocab, hidden),
        "mtp.fc.weight": (hidden, 2 * hidden),
        "mtp.pre_fc_norm_embedding.weight": (hidden,),
        "mtp.pre_fc_norm_hidden.weight": (hidden,),
        "mtp.norm.weight": (hidden,),
    }
    for i in range(config["num_hidden_layers"]):
        full = (i + 1) % config["full_attention_interval"] == 0
        layer = _attention_layer(config) if full else _gdn_layer(config)
        shapes |= {f"{PREFIX}layers.{i}.{name}": shape for name, shape in layer.items()}
    return shapes | {f"mtp.layers.0.{n}": s for n, s in _attention_layer(config).items()}


def _common(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    return {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }


def _attention_layer(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    hidden, dim = config["hidden_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    return _common(config) | {
        "self_attn.q_proj.weight": (2 * queries, hidden),
        "self_attn.k_proj.weight": (keys, hidden),
        "self_attn.v_proj.weight": (keys, hidden),
        "self_attn.o_proj.weight": (hidden, queries),
        "self_attn.q_norm.weight": (dim,),
        "self_attn.k_norm.weight": (dim,),
    }


def _gdn_layer(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    hidden, heads = config["hidden_size"], config["linear_num_value_heads"]
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    values = heads * config["linear_value_head_dim"]
    channels = 2 * keys + values
    return _common(config) | {
        "linear_attn.in_proj_qkv.weight": (channels, hidden),
        "linear_attn.in_proj_z.weight": (values, hidden),
        "linear_attn.in_proj_b.weight": (heads, hidden),
        "linear_attn.in_proj_a.weight": (heads, hidden),
        "linear_attn.conv1d.weight": (channels, 1, config["linear_conv_kernel_dim"]),
        "linear_attn.A_log": (heads,),
        "linear_attn.dt_bias": (heads,),
        "linear_attn.norm.weight": (config["linear_value_head_dim"],),
        "linear_attn.out_proj.weight": (hidden, values),
    }


def lively_tensors(config: dict[str, Any], seed: int) -> dict[str, torch.Tensor]:
    """bf16 tensors in which every term of the mathematics matters: no zero norms, decays from fast to slow, gates off centre."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in published_shapes(config).items():
        noise = torch.randn(shape, generator=generator)
        if name.endswith("A_log"):
            values = noise
        elif name.endswith("dt_bias"):
            values = noise - 3
        elif "norm" in name:
            values = 0.3 * noise + (1 if "linear_attn" in name else 0)
        elif name.endswith("conv1d.weight"):
            values = 0.6 * noise
        elif name.endswith("linear_attn.out_proj.weight"):
            # The gated norm makes a state read of nearly nothing as loud as any other, its rounding too:
            # at full size one token in some hundred would differ by 1e-4 in either implementation.
            values = noise * 0.5 * shape[-1] ** -0.5
        else:
            values = noise * (1.0 if "embed" in name else shape[-1] ** -0.5)
        tensors[name] = values.to(torch.bfloat16)
    return tensors


def write_config(directory: Path, config: dict[str, Any] = TEXT_CONFIG) -> None:
    """config.json in the nested, published form."""
    directory.mkdir(parents=True, exist_ok=True)
    document = {
        "model_type": "qwen3_5",
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "tie_word_embeddings": config["tie_word_embeddings"],
        "text_config": config,
    }
    (directory / "config.json").write_text(json.dumps(document))


def write_tiny_weights(directory: Path, seed: int = 0) -> dict[str, torch.Tensor]:
    """A whole directory, one tensor of a vision tower included; returns the text tensors by full name."""
    write_config(directory)
    tensors = lively_tensors(TEXT_CONFIG, seed)
    vision = {"model.visual.pos_embed.weight": torch.zeros(4, 8, dtype=torch.bfloat16)}
    save_file(tensors | vision, directory / "model.safetensors")
    return tensors
