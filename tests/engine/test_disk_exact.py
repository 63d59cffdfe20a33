"""State from disk is the state that was written, bit for bit: the same logits as from the host, the same tokens as from nothing. Real model."""

from pathlib import Path

import pytest
import torch

from engine.api import Tier
from engine.models.batch import CachePools, ForwardBatch, allocate_pools
from engine.models.qwen3_5 import Qwen35Model
from engine.planner.step import Budget
from engine.weights import load_model
from tests.engine.rig import Rig
from tests.engine.test_warm_equals_cold import NEVER, OUTPUT, cold, prompt
from tests.engine.tiny_weights import write_tiny_weights

CUTS = (1, 64, 201)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Qwen35Model:
    directory: Path = tmp_path_factory.mktemp("weights")
    write_tiny_weights(directory)
    return load_model(directory, torch.device("cpu"), torch.float32)


class Listening:
    """The model, and all logits that it gave."""

    def __init__(self, model: Qwen35Model) -> None:
        self._model = model
        self.logits: list[torch.Tensor] = []

    def forward(self, batch: ForwardBatch, pools: CachePools) -> torch.Tensor:
        logits = self._model.forward(batch, pools)
        self.logits.append(logits.clone())
        return logits

    def recorded(self, pools: CachePools, rows: int, vocab_limit: int) -> None:
        """All logits shall come through `forward`."""


def rig_on(
    model: Qwen35Model, disk: Path | None, cells: int = 200, host_cells: int = 200, life: str = "c"
) -> tuple[Rig, Listening]:
    pools = allocate_pools(model.config, cells, 4, 64, torch.float32, torch.device("cpu"))
    for pool in (pools.kv, pools.recurrent, pools.conv):
        pool.fill_(torch.nan)
    listening = Listening(model)
    rig = Rig(
        host_cells=host_cells,
        context=1024,
        budget=Budget(1024, 64),
        real=(listening, pools),
        stop_tokens=frozenset({NEVER}),
        disk=disk,
        life=life,
    )
    return rig, listening


@pytest.fixture(scope="module")
def cold_tokens(model: Qwen35Model) -> list[int]:
    return cold(model, prompt(256))


@pytest.fixture(scope="module")
def host_logits(model: Qwen35Model) -> dict[int, list[torch.Tensor]]:
    return {cut: from_host(model, cut) for cut in CUTS}


def from_host(model: Qwen35Model, cut: int) -> list[torch.Tensor]:
    rig, listening = rig_on(model, None, cells=18)
    rig.ask(prompt(256), anchors=(cut,), max_tokens=1, save_tip=False)
    rig.ask(prompt(1000, seed=1), "other", max_tokens=1, save_tip=False)
    assert rig.checkpoints("a")[cut].tier is Tier.HOST
    listening.logits.clear()
    rig.ask(prompt(256), "b", max_tokens=OUTPUT)
    return listening.logits


@pytest.mark.parametrize("host_cells", [0, 200])
@pytest.mark.parametrize("cut", CUTS)
def test_warm_equals_cold_from_disk(
    model: Qwen35Model,
    cold_tokens: list[int],
    host_logits: dict[int, list[torch.Tensor]],
    tmp_path: Path,
    cut: int,
    host_cells: int,
) -> None:
    first, _ = rig_on(model, tmp_path)
    first.ask(prompt(256), anchors=(cut,), max_tokens=1, save_tip=False)
    first.settle()
    first.kill()
    rig, listening = rig_on(model, tmp_path, host_cells=host_cells, life="d")
    request = rig.ask(prompt(256), "b", max_tokens=OUTPUT)
    started = rig.started(request)
    assert started.source is not None
    assert (started.reused_tokens, started.source.tier) == (cut, Tier.DISK)
    assert rig.output(request) == cold_tokens
    assert len(listening.logits) == len(host_logits[cut])
    assert all(map(torch.equal, listening.logits, host_logits[cut]))


def test_turn_after_turn_each_after_a_restart(model: Qwen35Model, tmp_path: Path) -> None:
    tokens = prompt(70)
    for turn in range(4):
        rig, _ = rig_on(model, tmp_path, life=f"life{turn}.")
        request = rig.ask(tokens, max_tokens=OUTPUT)
        assert rig.output(request) == cold(model, tokens)
        assert turn == 0 or rig.started(request).reused_tokens > 0
        tokens = [*rig.line(tokens, request), *prompt(17 + turn, seed=turn)]
        rig.settle()
        rig.kill()
