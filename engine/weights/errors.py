"""What can be wrong with weights.

WeightsError
├── BadWeightsFile     a file is absent, damaged, or contradicts its index
├── MissingTensors     the model has parameters that the files don't name
├── SurplusTensors     the files name tensors that the model has no place for
└── WrongShape         a tensor doesn't fit its parameter
"""

from pathlib import Path

from engine.errors import ConfigRefused


class WeightsError(ConfigRefused):
    """Base of all."""


class BadWeightsFile(WeightsError):
    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path


class MissingTensors(WeightsError):
    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(f"weights lack {_listed(names)}")
        self.names = names


class SurplusTensors(WeightsError):
    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(f"weights hold tensors this model has no place for: {_listed(names)}")
        self.names = names


class WrongShape(WeightsError):
    def __init__(self, name: str, found: tuple[int, ...], wanted: tuple[int, ...]) -> None:
        super().__init__(f"weights: {name} is {list(found)}, the model wants {list(wanted)}")
        self.name, self.found, self.wanted = name, found, wanted


def _listed(names: tuple[str, ...], shown: int = 8) -> str:
    rest = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + rest
