"""Parameter ← tensor: every parameter gets exactly one tensor, and no tensor is left over. Knows neither formats nor mathematics."""

from collections.abc import Iterable, Mapping

import torch

from engine.weights.errors import MissingTensors, SurplusTensors, WrongShape


def check_names(parameters: Iterable[str], tensors: Iterable[str]) -> None:
    """Raises MissingTensors or SurplusTensors, naming all of them."""
    wanted, found = set(parameters), set(tensors)
    if missing := wanted - found:
        raise MissingTensors(tuple(sorted(missing)))
    if surplus := found - wanted:
        raise SurplusTensors(tuple(sorted(surplus)))


def bind(
    parameters: Mapping[str, torch.Tensor], tensors: Iterable[tuple[str, torch.Tensor]]
) -> None:
    """Copies each tensor into the parameter of its name, converting to that one's dtype and device.

    Mutates `parameters`' memory (views of larger tensors are fine). Raises MissingTensors, SurplusTensors or WrongShape; the
    parameters are then partly filled.
    """
    bound = []
    for name, tensor in tensors:
        parameter = parameters.get(name)
        if parameter is None:
            raise SurplusTensors((name,))
        if parameter.shape != tensor.shape:
            raise WrongShape(name, tuple(tensor.shape), tuple(parameter.shape))
        parameter.copy_(tensor)
        bound.append(name)
    check_names(parameters, bound)
