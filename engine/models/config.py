"""What a published config.json says about a Qwen3.5-family text model, checked. Knows no tensors and no weights files."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.models.fields import (
    ConfigError,
    Fields,
    MissingField,
    UnsupportedConfig,
    WrongType,
)

FULL_ATTENTION = "full_attention"
LINEAR_ATTENTION = "linear_attention"
MODEL_TYPES = ("qwen3_5", "qwen3_5_text")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Geometry of a hybrid model: gated full attention in some layers, Gated DeltaNet in the others.

    Names follow the published config. `rotary_dim` is the rotated part of each attention head, `mrope_section` how its
    `rotary_dim / 2` frequencies are shared out over (time, height, width). `context_tokens` is the longest sequence the
    model was made for. Source: the published config.json of Qwen3.5, 3.6 and 3.8.
    """

    hidden_size: int
    intermediate_size: int
    vocab_size: int
    context_tokens: int
    layer_types: tuple[str, ...]
    rms_norm_eps: float
    tie_word_embeddings: bool
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rope_theta: float
    rotary_dim: int
    mrope_section: tuple[int, int, int]
    linear_num_key_heads: int
    linear_num_value_heads: int
    linear_key_head_dim: int
    linear_value_head_dim: int
    linear_conv_kernel_dim: int
    mtp_num_hidden_layers: int

    @classmethod
    def from_file(cls, path: Path) -> "ModelConfig":
        """Reads config.json (or the one in directory `path`). Raises ConfigError or OSError."""
        file = path / "config.json" if path.is_dir() else path
        try:
            document = json.loads(file.read_bytes())
        except ValueError as error:
            raise ConfigError(f"{file}: not JSON: {error}") from error
        if not isinstance(document, dict):
            raise WrongType("(document)", document, "an object")
        return cls.from_mapping(document)

    @classmethod
    def from_mapping(cls, document: Mapping[str, Any]) -> "ModelConfig":
        """Takes the nested (text_config) and the flat form. Raises ConfigError."""
        nested = document.get("text_config")
        if nested is not None and not isinstance(nested, dict):
            raise WrongType("text_config", nested, "an object")
        fields = Fields(document if nested is None else {**document, **nested})
        _refuse_unsupported(fields)
        return _build(fields)

    @property
    def num_attention_layers(self) -> int:
        return self.layer_types.count(FULL_ATTENTION)

    @property
    def num_gdn_layers(self) -> int:
        return self.layer_types.count(LINEAR_ATTENTION)

    @property
    def key_channels(self) -> int:
        return self.linear_num_key_heads * self.linear_key_head_dim

    @property
    def value_channels(self) -> int:
        return self.linear_num_value_heads * self.linear_value_head_dim

    @property
    def conv_channels(self) -> int:
        """Channels the convolution runs over: queries, keys, values."""
        return 2 * self.key_channels + self.value_channels

    @property
    def recurrent_shape(self) -> tuple[int, int, int, int]:
        """One lane's recurrent state: [gdn_layers, value_heads, key_dim, value_dim], fp32."""
        dims = (self.linear_key_head_dim, self.linear_value_head_dim)
        return (self.num_gdn_layers, self.linear_num_value_heads, *dims)

    @property
    def conv_shape(self) -> tuple[int, int, int]:
        """One lane's convolution state: [gdn_layers, conv_channels, kernel - 1], activation dtype."""
        return (self.num_gdn_layers, self.conv_channels, self.linear_conv_kernel_dim - 1)

    def page_shape(self, page_tokens: int) -> tuple[int, int, int, int, int]:
        """One KV page: [attention_layers, key | value, page_tokens, kv_heads, head_dim]."""
        return (
            self.num_attention_layers,
            2,
            page_tokens,
            self.num_key_value_heads,
            self.head_dim,
        )


def _refuse_unsupported(fields: Fields) -> None:
    """Values that would change the mathematics. Absent ones have the family's meaning."""
    allowed: dict[str, tuple[object, ...]] = {
        "model_type": MODEL_TYPES,
        "hidden_act": ("silu",),
        "attention_bias": (False,),
        "attn_output_gate": (True,),
        "output_gate_type": ("swish", "silu"),
        "mtp_use_dedicated_embeddings": (False,),
        "mamba_ssm_dtype": ("float32",),
        "num_experts": (0,),
        "quantization_config": (),
    }
    for name, values in allowed.items():
        value = fields.get(name)
        if value is not None and value not in values:
            raise UnsupportedConfig(name, value, ", ".join(map(repr, values)) or "absent")
    if fields.get("model_type") is None:
        raise MissingField("model_type")


def _build(fields: Fields) -> ModelConfig:
    heads = fields.size("num_attention_heads")
    head_dim = fields.size("head_dim", 256)
    theta, rotary_dim, section = _rope(fields, head_dim)
    config = ModelConfig(
        hidden_size=fields.size("hidden_size"),
        intermediate_size=fields.size("intermediate_size"),
        vocab_size=fields.size("vocab_size"),
        context_tokens=fields.size("max_position_embeddings"),
        layer_types=_layer_types(fields),
        rms_norm_eps=fields.number("rms_norm_eps", 1e-6),
        tie_word_embeddings=fields.flag("tie_word_embeddings", False),
        num_attention_heads=heads,
        num_key_value_heads=fields.size("num_key_value_heads"),
        head_dim=head_dim,
        rope_theta=theta,
        rotary_dim=rotary_dim,
        mrope_section=section,
        linear_num_key_heads=fields.size("linear_num_key_heads"),
        linear_num_value_heads=fields.size("linear_num_value_heads"),
        linear_key_head_dim=fields.size("linear_key_head_dim"),
        linear_value_head_dim=fields.size("linear_value_head_dim"),
        linear_conv_kernel_dim=fields.size("linear_conv_kernel_dim", 4),
        mtp_num_hidden_layers=fields.integer("mtp_num_hidden_layers", 0),
    )
    _check_geometry(config)
    return config


def _layer_types(fields: Fields) -> tuple[str, ...]:
    count = fields.size("num_hidden_layers")
    names = fields.get("layer_types")
    if names is None:
        interval = fields.size("full_attention_interval", 4)
        return tuple(
            LINEAR_ATTENTION if (i + 1) % interval else FULL_ATTENTION for i in range(count)
        )
    if not isinstance(names, list) or len(names) != count:
        raise WrongType("layer_types", names, f"a list of {count} names")
    for name in names:
        if name not in (FULL_ATTENTION, LINEAR_ATTENTION):
            raise UnsupportedConfig("layer_types", name, f"{FULL_ATTENTION}, {LINEAR_ATTENTION}")
    return tuple(names)


def _rope(fields: Fields, head_dim: int) -> tuple[float, int, tuple[int, int, int]]:
    """(theta, rotary_dim, mrope_section) from rope_parameters, or from the older top-level fields."""
    rope = fields.section("rope_parameters")
    kind = rope.get("rope_type")
    if kind not in (None, "default"):
        raise UnsupportedConfig("rope_parameters.rope_type", kind, "'default'")
    if fields.get("rope_scaling") is not None:
        raise UnsupportedConfig("rope_scaling", fields.get("rope_scaling"), "absent")
    if rope.get("mrope_interleaved") is False:
        raise UnsupportedConfig("rope_parameters.mrope_interleaved", False, "true")
    theta = (rope if rope.get("rope_theta") is not None else fields).number("rope_theta", 1e7)
    source = rope if rope.get("partial_rotary_factor") is not None else fields
    rotary_dim = int(head_dim * source.number("partial_rotary_factor", 0.25))
    section = rope.integers("mrope_section", (11, 11, 10))
    if len(section) != 3:
        raise WrongType("rope_parameters.mrope_section", section, "three integers")
    return theta, rotary_dim, (section[0], section[1], section[2])


def _check_geometry(config: ModelConfig) -> None:
    if config.num_attention_heads % config.num_key_value_heads:
        raise UnsupportedConfig(
            "num_attention_heads",
            config.num_attention_heads,
            f"a multiple of num_key_value_heads ({config.num_key_value_heads})",
        )
    if config.linear_num_value_heads % config.linear_num_key_heads:
        raise UnsupportedConfig(
            "linear_num_value_heads",
            config.linear_num_value_heads,
            f"a multiple of linear_num_key_heads ({config.linear_num_key_heads})",
        )
    if config.rotary_dim % 2 or not 0 < config.rotary_dim <= config.head_dim:
        raise UnsupportedConfig(
            "partial_rotary_factor",
            config.rotary_dim / config.head_dim,
            "one that rotates an even number of dimensions of a head",
        )
    if config.linear_conv_kernel_dim < 2:
        raise UnsupportedConfig("linear_conv_kernel_dim", config.linear_conv_kernel_dim, ">= 2")
    if config.mtp_num_hidden_layers > 1:
        raise UnsupportedConfig("mtp_num_hidden_layers", config.mtp_num_hidden_layers, "0, 1")
