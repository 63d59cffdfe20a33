"""The same greedy tokens from each place that state can come from, alone and beside others, as from nothing. Real model path."""

from pathlib import Path

import pytest
import torch

from engine.api import RequestId, Tier
from engine.models.qwen3_5 import Qwen35Model
from engine.weights import load_model
from tests.engine.rig import Rig
from tests.engine.test_disk_exact import rig_on
from tests.engine.test_warm_equals_cold import OUTPUT, cold, prompt
from tests.engine.tiny_weights import write_tiny_weights

CUT = 201
"""In mid-page: a part of a page comes back too."""
NARROW = 18
"""Cells of a device that one long prompt fills."""
BESIDE = (40, 130)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Qwen35Model:
    directory: Path = tmp_path_factory.mktemp("weights")
    write_tiny_weights(directory)
    return load_model(directory, torch.device("cpu"), torch.float32)


@pytest.fixture(scope="module")
def expected(model: Qwen35Model) -> dict[int, list[int]]:
    return {length: cold(model, prompt(length)) for length in (256, *BESIDE)}


def holding(rig: Rig) -> Rig:
    """A checkpoint at CUT, on the device and on the disk."""
    rig.ask(prompt(256), anchors=(CUT,), max_tokens=1, save_tip=False)
    rig.settle()
    return rig


def crowded(rig: Rig) -> Rig:
    """Something else has filled the device since."""
    rig.ask(prompt(1000, seed=1), "other", max_tokens=1, save_tip=False)
    return rig


def on_device(model: Qwen35Model, disk: Path) -> Rig:
    return holding(rig_on(model, disk)[0])


def on_host(model: Qwen35Model, disk: Path) -> Rig:
    return crowded(holding(rig_on(model, disk, cells=NARROW)[0]))


def on_disk(model: Qwen35Model, disk: Path) -> Rig:
    return crowded(holding(rig_on(model, disk, cells=NARROW, host_cells=0)[0]))


def restarted(model: Qwen35Model, disk: Path) -> Rig:
    holding(rig_on(model, disk)[0]).kill()
    return rig_on(model, disk, life="d")[0]


PLACES = {
    "device": (on_device, Tier.DEVICE),
    "host": (on_host, Tier.HOST),
    "disk": (on_disk, Tier.DISK),
    "restart": (restarted, Tier.DISK),
}


@pytest.mark.parametrize("company", ["alone", "in a batch"])
@pytest.mark.parametrize("place", PLACES)
def test_warm_equals_cold(
    model: Qwen35Model,
    expected: dict[int, list[int]],
    tmp_path: Path,
    place: str,
    company: str,
) -> None:
    make, tier = PLACES[place]
    rig = make(model, tmp_path)
    beside: dict[int, RequestId] = {}
    if company == "in a batch":
        beside = {n: rig.submit(prompt(n), f"b{n}", max_tokens=OUTPUT) for n in BESIDE}
        rig.step()
        rig.step()
        assert len(rig.scheduler.running) == len(beside)
    request = rig.ask(prompt(256), "again", max_tokens=OUTPUT)
    started = rig.started(request)
    assert started.source is not None
    assert (started.reused_tokens, started.source.tier) == (CUT, tier)
    assert rig.output(request) == expected[256]
    for length, other in beside.items():
        assert rig.output(other) == expected[length]
