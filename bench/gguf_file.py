"""A published Qwen3.5-family checkpoint as the GGUF file that llama.cpp reads. Knows both layouts; runs neither model.

What differs from the published layout: norms are stored as 1 + w, decays as -exp(A_log), and the value heads of Gated DeltaNet
lie in another order, because llama.cpp lets value head j read key head j mod (key heads):

    published   k0: v0 v1 v2 | k1: v3 v4 v5        the value heads of one key head side by side
    GGUF        v0 v3 | v1 v4 | v2 v5              the first of each key head, then the second of each, ...

The layer for multi-token prediction becomes one more block behind the trunk's. The vocabulary is made up: prompts and answers are
token ids, llama.cpp only wants a word for each. Source: llama.cpp's conversion/qwen.py and src/models/qwen35.cpp (b11434).
"""

from pathlib import Path

import gguf
import torch

from engine.models.config import ModelConfig
from engine.weights import SafetensorsReader

ARCHITECTURE = "qwen35"
FORMATS = {
    "f32": gguf.GGMLQuantizationType.F32,
    "f16": gguf.GGMLQuantizationType.F16,
    "bf16": gguf.GGMLQuantizationType.BF16,
}
"""What matrices may be stored in; vectors and the convolution are always f32. Weights published in bf16 stay exact in f32 and bf16."""

OUTER = {
    "embed_tokens.weight": "token_embd.weight",
    "norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
INNER = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "linear_attn.in_proj_qkv.weight": "attn_qkv.weight",
    "linear_attn.in_proj_z.weight": "attn_gate.weight",
    "linear_attn.in_proj_b.weight": "ssm_beta.weight",
    "linear_attn.in_proj_a.weight": "ssm_alpha.weight",
    "linear_attn.conv1d.weight": "ssm_conv1d.weight",
    "linear_attn.A_log": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt.bias",
    "linear_attn.norm.weight": "ssm_norm.weight",
    "linear_attn.out_proj.weight": "ssm_out.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}
MTP = {
    "mtp.fc.weight": "nextn.eh_proj.weight",
    "mtp.pre_fc_norm_embedding.weight": "nextn.enorm.weight",
    "mtp.pre_fc_norm_hidden.weight": "nextn.hnorm.weight",
    "mtp.norm.weight": "nextn.shared_head_norm.weight",
}


def write_gguf(directory: Path, target: Path, matrix_format: str = "f32") -> None:
    """Converts the checkpoint in `directory`; matrices are stored as `matrix_format`, a key of FORMATS.

    Raises ValueError for a geometry that llama.cpp can't hold (key and value dimensions of Gated DeltaNet must be equal), and
    what engine.weights and engine.models.config raise for a directory they can't read.
    """
    config = ModelConfig.from_file(directory)
    if config.linear_key_head_dim != config.linear_value_head_dim:
        raise ValueError(
            f"llama.cpp wants one dimension for keys and values of Gated DeltaNet, not "
            f"{config.linear_key_head_dim} and {config.linear_value_head_dim}"
        )
    writer = gguf.GGUFWriter(target, ARCHITECTURE)
    _add_parameters(writer, config, directory)
    _add_vocabulary(writer, config.vocab_size)
    for name, tensor in SafetensorsReader(directory).tensors():
        values = _converted(name, tensor.float(), config).numpy()
        kind = FORMATS["f32" if values.ndim == 1 or "conv1d" in name else matrix_format]
        writer.add_tensor(_gguf_name(name, config), gguf.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tiled_order(key_heads: int, value_heads: int) -> torch.Tensor:
    """Index [value_heads]: the published value head that stands at each place of a GGUF."""
    return torch.arange(value_heads).view(key_heads, -1).T.flatten()


def _gguf_name(name: str, config: ModelConfig) -> str:
    layers = len(config.layer_types)
    if name in OUTER:
        return OUTER[name]
    if name in MTP:
        return f"blk.{layers}.{MTP[name]}"
    if name.startswith("mtp.layers.0."):
        return f"blk.{layers}.{INNER[name.removeprefix('mtp.layers.0.')]}"
    _, number, inner = name.split(".", 2)
    return f"blk.{number}.{INNER[inner]}"


def _converted(name: str, tensor: torch.Tensor, config: ModelConfig) -> torch.Tensor:
    """The numbers as a GGUF holds them, fp32 and contiguous."""
    if name.endswith("conv1d.weight"):
        tensor = tensor.squeeze(1)
    if "linear_attn." in name:
        tensor = _reordered(name, tensor, config)
    if name.endswith("A_log"):
        tensor = -tensor.exp()
    elif name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight"):
        tensor = 1 + tensor
    return tensor.contiguous()


def _reordered(name: str, tensor: torch.Tensor, config: ModelConfig) -> torch.Tensor:
    """Value heads from published to tiled order, wherever the tensor has them."""
    heads = tiled_order(config.linear_num_key_heads, config.linear_num_value_heads)
    dim = config.linear_value_head_dim
    channels = (heads[:, None] * dim + torch.arange(dim)).flatten()
    part = name.rsplit("linear_attn.", 1)[1].removesuffix(".weight")
    if part in ("in_proj_b", "in_proj_a", "A_log", "dt_bias"):
        return tensor[heads]
    if part == "in_proj_z":
        return tensor[channels]
    if part == "out_proj":
        return tensor[:, channels]
    if part in ("in_proj_qkv", "conv1d"):
        queries_and_keys = 2 * config.key_channels
        return torch.cat((tensor[:queries_and_keys], tensor[queries_and_keys:][channels]))
    return tensor


def _add_parameters(writer: gguf.GGUFWriter, config: ModelConfig, directory: Path) -> None:
    sections = (*config.mrope_section, 0)
    layers, extra = len(config.layer_types), config.mtp_num_hidden_layers
    writer.add_block_count(layers + extra)
    writer.add_context_length(config.context_tokens)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_rope_dimension_count(config.rotary_dim)
    writer.add_rope_dimension_sections(sections)
    writer.add_ssm_conv_kernel(config.linear_conv_kernel_dim)
    writer.add_ssm_state_size(config.linear_key_head_dim)
    writer.add_ssm_group_count(config.linear_num_key_heads)
    writer.add_ssm_time_step_rank(config.linear_num_value_heads)
    writer.add_ssm_inner_size(config.value_channels)
    writer.add_uint32(f"{ARCHITECTURE}.full_attention_interval", _attention_interval(config))
    if extra:
        writer.add_uint32(f"{ARCHITECTURE}.nextn_predict_layers", extra)


def _attention_interval(config: ModelConfig) -> int:
    interval = config.layer_types.index("full_attention") + 1
    regular = tuple(
        "linear_attention" if (i + 1) % interval else "full_attention"
        for i in range(len(config.layer_types))
    )
    if regular != config.layer_types:
        raise ValueError(f"full attention does not come every {interval} layers")
    return interval


def _add_vocabulary(writer: gguf.GGUFWriter, size: int) -> None:
    """One ASCII word a token, so that llama.cpp reports each token by itself; of a kind that knows no end token."""
    writer.add_tokenizer_model("rwkv")
    writer.add_token_list([f"<{number}>" for number in range(size)])
