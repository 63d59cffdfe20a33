"""Weights files into models. Readers know formats, `bind` knows names and shapes; neither knows what the numbers do."""

from engine.weights.bind import bind
from engine.weights.errors import (
    BadWeightsFile,
    MissingTensors,
    SurplusTensors,
    WeightsError,
    WrongShape,
)
from engine.weights.load import fill_model, load_model
from engine.weights.safetensors import SafetensorsReader

__all__ = [
    "BadWeightsFile",
    "MissingTensors",
    "SafetensorsReader",
    "SurplusTensors",
    "WeightsError",
    "WrongShape",
    "bind",
    "fill_model",
    "load_model",
]
