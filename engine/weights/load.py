"""A model from a directory of published files. The one place where weights and models meet."""

from pathlib import Path

import torch

from engine.models.config import ModelConfig
from engine.models.qwen3_5 import Qwen35Model
from engine.weights.bind import bind, check_names
from engine.weights.safetensors import SafetensorsReader


def load_model(directory: Path, device: torch.device, dtype: torch.dtype) -> Qwen35Model:
    """A model that can compute. Raises as `fill_model` does."""
    model = fill_model(directory, device, dtype)
    model.pack()
    return model


def fill_model(directory: Path, device: torch.device, dtype: torch.dtype) -> Qwen35Model:
    """A model with its weights under their published names, not packed yet.

    Reads config.json and the safetensors beside it; the multi-token prediction head is loaded if its tensors are there.

    Raises ConfigError (engine.models.fields), WeightsError or OSError.
    """
    config = ModelConfig.from_file(directory)
    reader = SafetensorsReader(directory)
    with_mtp = any(name.startswith("mtp.") for name in reader.names())
    model = Qwen35Model(config, device, dtype, with_mtp)
    parameters = dict(model.tensors())
    check_names(parameters, reader.names())
    bind(parameters, reader.tensors())
    return model
