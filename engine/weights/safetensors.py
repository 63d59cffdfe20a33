"""Reader of safetensors directories: one file, or shards and their index, under published names. Knows no model.

Names are given without the prefixes that only some publishers write (`model.language_model.`, `model.`). Tensors of the vision tower
are left out: this engine has no use for them yet.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from engine.weights.errors import BadWeightsFile

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
TEXT_PREFIXES = ("model.language_model.", "model.")
VISION_PREFIXES = ("model.visual.", "visual.")


class SafetensorsReader:
    """The text tensors of one directory. Raises BadWeightsFile.

    `files` maps each plain name to its file and full name there; tensors are read one at a time.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        index = directory / INDEX_FILE
        found = _indexed(index) if index.exists() else _listed(directory / SINGLE_FILE)
        self.files: dict[str, tuple[Path, str]] = {}
        for full, file in found.items():
            if full.startswith(VISION_PREFIXES):
                continue
            name = plain_name(full)
            if name in self.files:
                raise BadWeightsFile(file, f"{full} and {self.files[name][1]} are one tensor")
            self.files[name] = (file, full)

    def names(self) -> frozenset[str]:
        return frozenset(self.files)

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """(plain name, tensor on the CPU as stored), file by file."""
        by_file: dict[Path, list[str]] = {}
        for name, (file, _) in self.files.items():
            by_file.setdefault(file, []).append(name)
        for file, names in by_file.items():
            with _opened(file) as handle:
                held = frozenset(handle.keys())
                for name in names:
                    full = self.files[name][1]
                    if full not in held:
                        raise BadWeightsFile(file, f"{full}, which the index puts here, is absent")
                    yield name, handle.get_tensor(full)


def plain_name(full: str) -> str:
    """`model.language_model.layers.0.x` and `model.layers.0.x` → `layers.0.x`."""
    for prefix in TEXT_PREFIXES:
        if full.startswith(prefix):
            return full.removeprefix(prefix)
    return full


def _opened(file: Path) -> safe_open:
    try:
        return safe_open(file, framework="pt")
    except (OSError, SafetensorError) as error:
        raise BadWeightsFile(file, str(error)) from error


def _listed(file: Path) -> dict[str, Path]:
    with _opened(file) as handle:
        return dict.fromkeys(handle.keys(), file)


def _indexed(index: Path) -> dict[str, Path]:
    try:
        shards = json.loads(index.read_bytes())["weight_map"]
        return {name: index.parent / str(shard) for name, shard in shards.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadWeightsFile(index, f"no index of weights: {error!r}") from error
