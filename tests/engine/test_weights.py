"""Config and weights files: both published forms, shards, and every way a file can be wrong, named in the error."""

import json
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from engine.models.config import ModelConfig
from engine.models.fields import ConfigError, MissingField, UnsupportedConfig, WrongType
from engine.models.qwen3_5 import Qwen35Model
from engine.weights import (
    BadWeightsFile,
    MissingTensors,
    SafetensorsReader,
    SurplusTensors,
    WrongShape,
    fill_model,
)
from tests.engine.tiny_weights import (
    PREFIX,
    TEXT_CONFIG,
    lively_tensors,
    write_config,
    write_tiny_weights,
)

CPU = torch.device("cpu")
PUBLISHED_27B: dict[str, Any] = {
    "model_type": "qwen3_5",
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "image_token_id": 248056,
    "tie_word_embeddings": False,
    "language_model_only": False,
    "vision_config": {"model_type": "qwen3_5_vision", "depth": 27, "hidden_size": 1152},
    "text_config": {
        "model_type": "qwen3_5_text",
        "attention_bias": False,
        "attn_output_gate": True,
        "full_attention_interval": 4,
        "head_dim": 256,
        "hidden_act": "silu",
        "hidden_size": 5120,
        "intermediate_size": 17408,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 48,
        "linear_value_head_dim": 128,
        "mamba_ssm_dtype": "float32",
        "max_position_embeddings": 262144,
        "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False,
        "num_attention_heads": 24,
        "num_hidden_layers": 64,
        "num_key_value_heads": 4,
        "output_gate_type": "swish",
        "rms_norm_eps": 1e-6,
        "rope_parameters": {
            "mrope_interleaved": True,
            "mrope_section": [11, 11, 10],
            "partial_rotary_factor": 0.25,
            "rope_theta": 10000000,
            "rope_type": "default",
        },
        "eos_token_id": 248044,
        "vocab_size": 248320,
    },
}


def load(directory: Path) -> Qwen35Model:
    return fill_model(directory, CPU, torch.float32)


def parameters(model: Qwen35Model) -> dict[str, torch.Tensor]:
    return dict(model.tensors())


class TestConfig:
    def test_sizes_of_the_published_27b(self) -> None:
        """The figures of the reference: 64 KiB of bf16 keys and values a token, 144 MiB of recurrent state."""
        config = ModelConfig.from_mapping(PUBLISHED_27B)
        assert (config.num_attention_layers, config.num_gdn_layers) == (16, 48)
        assert [i for i, name in enumerate(config.layer_types) if name == "full_attention"] == [
            *range(3, 64, 4)
        ]
        assert (config.rotary_dim, config.conv_channels) == (64, 10240)
        assert 2 * prod(config.page_shape(1)) == 65_536
        assert 4 * prod(config.recurrent_shape) == 150_994_944
        assert 2 * prod(config.conv_shape) == 2_949_120

    def test_parameters_of_the_published_27b(self) -> None:
        config = ModelConfig.from_mapping(PUBLISHED_27B)
        model = Qwen35Model(config, torch.device("meta"), torch.bfloat16, with_mtp=True)
        counts = {name: tensor.numel() for name, tensor in model.tensors()}
        mtp = {name for name in counts if name.startswith("mtp.")}
        assert sum(counts[name] for name in mtp) == 424_699_392
        assert sum(counts.values()) - sum(counts[name] for name in mtp) == 26_895_998_464
        assert (len(mtp), len(counts)) == (15, 15 + 851)

    def test_flat_form_and_layer_types(self) -> None:
        text = PUBLISHED_27B["text_config"]
        flat = {name: value for name, value in text.items() if name != "full_attention_interval"}
        names = ["linear_attention"] * 3 + ["full_attention"]
        nested = ModelConfig.from_mapping(PUBLISHED_27B)
        assert ModelConfig.from_mapping(flat | {"layer_types": names * 16}) == nested

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("model_type", "qwen3_next"),
            ("hidden_act", "gelu"),
            ("attention_bias", True),
            ("attn_output_gate", False),
            ("output_gate_type", "sigmoid"),
            ("mamba_ssm_dtype", "bfloat16"),
            ("quantization_config", {"quant_method": "gptq"}),
            ("mtp_num_hidden_layers", 2),
            ("num_attention_heads", 5),
            ("linear_num_value_heads", 5),
            ("linear_conv_kernel_dim", 1),
            ("layer_types", ["sliding_attention"] * 8),
            ("rope_scaling", {"type": "yarn"}),
            ("rope_parameters", {"rope_type": "yarn", "factor": 4}),
            ("rope_parameters", {"mrope_interleaved": False}),
            ("rope_parameters", {"partial_rotary_factor": 1.5}),
        ],
    )
    def test_unsupported_values_are_named(self, field: str, value: object) -> None:
        wanted = "partial_rotary_factor" if "1.5" in str(value) else field
        with pytest.raises(UnsupportedConfig) as caught:
            ModelConfig.from_mapping(TEXT_CONFIG | {field: value})
        assert caught.value.field.split(".")[0] == wanted
        assert wanted in str(caught.value)

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("hidden_size", "64"),
            ("hidden_size", 0),
            ("hidden_size", True),
            ("vocab_size", -1),
            ("rms_norm_eps", "small"),
            ("rms_norm_eps", float("nan")),
            ("tie_word_embeddings", 1),
            ("layer_types", ["full_attention"]),
            ("rope_parameters", [1]),
        ],
    )
    def test_wrong_types_are_named(self, field: str, value: object) -> None:
        with pytest.raises(WrongType) as caught:
            ModelConfig.from_mapping(TEXT_CONFIG | {field: value})
        assert caught.value.field == field

    @pytest.mark.parametrize("field", ["hidden_size", "model_type", "num_attention_heads"])
    def test_missing_fields_are_named(self, field: str) -> None:
        with pytest.raises(MissingField, match=field):
            ModelConfig.from_mapping({k: v for k, v in TEXT_CONFIG.items() if k != field})

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"text_config": 3}', "\ud800"])
    def test_damaged_files(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "config.json").write_bytes(text.encode(errors="surrogatepass"))
        with pytest.raises(ConfigError):
            ModelConfig.from_file(tmp_path)


class TestNames:
    def test_every_tensor_lands_where_its_name_says(self, tmp_path: Path) -> None:
        published = write_tiny_weights(tmp_path)
        held = parameters(load(tmp_path))
        assert len(held) == len(published)
        for full, tensor in published.items():
            assert torch.equal(held[full.removeprefix(PREFIX)], tensor.float())

    @pytest.mark.parametrize("prefix", ["model.", ""])
    def test_other_prefixes(self, tmp_path: Path, prefix: str) -> None:
        write_config(tmp_path)
        published = lively_tensors(TEXT_CONFIG, 0)
        renamed = {name.replace(PREFIX, prefix): tensor for name, tensor in published.items()}
        save_file(renamed, tmp_path / "model.safetensors")
        held = parameters(load(tmp_path))
        assert torch.equal(held["norm.weight"], published[f"{PREFIX}norm.weight"].float())

    def test_shards(self, tmp_path: Path) -> None:
        write_config(tmp_path)
        published = lively_tensors(TEXT_CONFIG, 0)
        write_shards(tmp_path, published)
        held = parameters(load(tmp_path))
        for full, tensor in published.items():
            assert torch.equal(held[full.removeprefix(PREFIX)], tensor.float())

    def test_without_the_prediction_head(self, tmp_path: Path) -> None:
        write_config(tmp_path)
        published = lively_tensors(TEXT_CONFIG, 0)
        trunk = {name: t for name, t in published.items() if not name.startswith("mtp.")}
        save_file(trunk, tmp_path / "model.safetensors")
        assert load(tmp_path).mtp is None

    def test_tied_embeddings_need_no_head(self, tmp_path: Path) -> None:
        write_config(tmp_path, TEXT_CONFIG | {"tie_word_embeddings": True})
        published = lively_tensors(TEXT_CONFIG, 0)
        del published["lm_head.weight"]
        save_file(published, tmp_path / "model.safetensors")
        model = load(tmp_path)
        hidden = torch.randn(3, 64)
        embedding = published[f"{PREFIX}embed_tokens.weight"].float()
        torch.testing.assert_close(model.logits(hidden), hidden @ embedding.T)


def write_shards(directory: Path, tensors: dict[str, torch.Tensor]) -> None:
    names = sorted(tensors)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for shard, held in shards.items():
        save_file({name: tensors[name] for name in held}, directory / shard)
    weight_map = {name: shard for shard, held in shards.items() for name in held}
    index = json.dumps({"metadata": {}, "weight_map": weight_map})
    (directory / "model.safetensors.index.json").write_text(index)


class TestWrongWeights:
    @pytest.fixture
    def published(self, tmp_path: Path) -> dict[str, torch.Tensor]:
        write_config(tmp_path)
        return lively_tensors(TEXT_CONFIG, 0)

    def test_missing_tensors_are_all_named(
        self, tmp_path: Path, published: dict[str, torch.Tensor]
    ) -> None:
        del published[f"{PREFIX}layers.0.linear_attn.A_log"]
        del published["mtp.fc.weight"]
        save_file(published, tmp_path / "model.safetensors")
        with pytest.raises(MissingTensors) as caught:
            load(tmp_path)
        assert caught.value.names == ("layers.0.linear_attn.A_log", "mtp.fc.weight")

    def test_surplus_tensors_are_named(
        self, tmp_path: Path, published: dict[str, torch.Tensor]
    ) -> None:
        published[f"{PREFIX}layers.8.input_layernorm.weight"] = torch.zeros(64)
        save_file(published, tmp_path / "model.safetensors")
        with pytest.raises(SurplusTensors, match=r"layers\.8\.input_layernorm\.weight"):
            load(tmp_path)

    def test_wrong_shapes_are_named(
        self, tmp_path: Path, published: dict[str, torch.Tensor]
    ) -> None:
        name = f"{PREFIX}layers.3.self_attn.q_proj.weight"
        published[name] = published[name][:128].contiguous()
        save_file(published, tmp_path / "model.safetensors")
        with pytest.raises(WrongShape) as caught:
            load(tmp_path)
        assert caught.value.name == "layers.3.self_attn.q_proj.weight"
        assert (caught.value.found, caught.value.wanted) == ((128, 64), (256, 64))

    def test_one_tensor_under_two_names(
        self, tmp_path: Path, published: dict[str, torch.Tensor]
    ) -> None:
        published["model.norm.weight"] = torch.zeros(64)
        save_file(published, tmp_path / "model.safetensors")
        with pytest.raises(BadWeightsFile, match="are one tensor"):
            load(tmp_path)

    @pytest.mark.parametrize("keep", [0, 4, 100, 5000])
    def test_cut_file(self, tmp_path: Path, published: dict[str, torch.Tensor], keep: int) -> None:
        file = tmp_path / "model.safetensors"
        save_file(published, file)
        file.write_bytes(file.read_bytes()[:keep])
        with pytest.raises(BadWeightsFile, match=r"model\.safetensors"):
            load(tmp_path)

    def test_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(BadWeightsFile):
            SafetensorsReader(tmp_path)

    def test_absent_shard(self, tmp_path: Path, published: dict[str, torch.Tensor]) -> None:
        write_shards(tmp_path, published)
        (tmp_path / "b.safetensors").unlink()
        with pytest.raises(BadWeightsFile, match=r"b\.safetensors"):
            load(tmp_path)

    def test_index_that_points_at_the_wrong_shard(
        self, tmp_path: Path, published: dict[str, torch.Tensor]
    ) -> None:
        write_shards(tmp_path, published)
        index = tmp_path / "model.safetensors.index.json"
        index.write_text(index.read_text().replace("b.safetensors", "a.safetensors"))
        with pytest.raises(BadWeightsFile, match="is absent"):
            load(tmp_path)

    @pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": 4}', '{"weight_map": ["x"]}'])
    def test_damaged_index(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "model.safetensors.index.json").write_text(text)
        with pytest.raises(BadWeightsFile, match="index"):
            SafetensorsReader(tmp_path)
