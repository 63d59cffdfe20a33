"""The two models that are measured, as directories of published files, and their GGUFs. Knows geometry and files, no timing."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

import engine
from bench.gguf_file import write_gguf
from engine.models.config import ModelConfig
from engine.models.qwen3_5 import Qwen35Model
from engine.text.model import TextModel

DEMO = Path(engine.__file__).parent / "demo"
TEXT_FILES = ("tokenizer.json", "chat_template.jinja", "generation_config.json")
WIDE: dict[str, Any] = {
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "tie_word_embeddings": False,
}
"""What the random model has otherwise than the demo model: 8 layers too, four times as wide."""
LIVELY: dict[str, Any] = {
    "num_hidden_layers": 4,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    "tie_word_embeddings": False,
}
"""A head of its own: with a tied one, random weights repeat the last token whatever the state is."""


@dataclass(slots=True)
class BenchModel:
    """A directory the engine loads. `gguf` makes llama.cpp's file of it in `scratch` when it's first asked for."""

    name: str
    directory: Path
    scratch: Path
    text: TextModel = field(init=False)
    config: ModelConfig = field(init=False)

    def __post_init__(self) -> None:
        self.text = TextModel.load(self.directory)
        self.config = ModelConfig.from_file(self.directory)

    def gguf(self, matrices: str) -> Path:
        file = self.scratch / f"{self.name}-{matrices}.gguf"
        if not file.exists():
            write_gguf(self.directory, file, matrices)
        return file

    def weight_bytes(self) -> int:
        """What the weights take in the engine's memory on a CPU: bf16, a tied head twice (by rows and packed)."""
        device = torch.device("meta")
        with_mtp = self.config.mtp_num_hidden_layers > 0
        model = Qwen35Model(self.config, device, torch.bfloat16, with_mtp)
        again = model.embedding.nbytes if self.config.tie_word_embeddings else 0
        return sum(tensor.nbytes for _, tensor in model.tensors()) + again


def demo(scratch: Path) -> BenchModel:
    return BenchModel("demo", DEMO, scratch)


def wide(scratch: Path) -> BenchModel:
    """Random weights of width 512, with the demo model's tokenizer and template."""
    return _random(scratch, "wide", WIDE)


def lively(scratch: Path) -> BenchModel:
    """Random weights, half as deep as the demo model: what it says next depends on all that came before."""
    return _random(scratch, "lively", LIVELY)


def _random(scratch: Path, name: str, changes: Mapping[str, Any]) -> BenchModel:
    directory = scratch / name
    directory.mkdir()
    for file in TEXT_FILES:
        shutil.copy(DEMO / file, directory / file)
    document = json.loads((DEMO / "config.json").read_text())
    document["text_config"] |= changes
    document["tie_word_embeddings"] = changes["tie_word_embeddings"]
    (directory / "config.json").write_text(json.dumps(document))
    write_random_weights(directory)
    return BenchModel(name, directory, scratch)


def write_random_weights(directory: Path, seed: int = 0) -> None:
    """bf16 weights for the directory's config.json, scaled so that activations stay of one size and gates near their middle."""
    config = ModelConfig.from_file(directory)
    generator = torch.Generator().manual_seed(seed)
    model = Qwen35Model(
        config, torch.device("meta"), torch.float32, config.mtp_num_hidden_layers > 0
    )
    tensors = {}
    for name, parameter in model.tensors():
        noise = torch.randn(parameter.shape, generator=generator)
        if name.endswith("dt_bias"):
            values = noise - 3
        elif name.endswith(("norm.weight", "layernorm.weight")):
            values = 0.1 * noise + (1 if "linear_attn" in name else 0)
        elif name.endswith("A_log"):
            values = noise
        else:
            values = noise * (1.0 if "embed" in name else parameter.shape[-1] ** -0.5)
        prefix = "" if name.startswith(("mtp.", "lm_head.")) else "model.language_model."
        tensors[prefix + name] = values.to(torch.bfloat16)
    save_file(tensors, directory / "model.safetensors")
