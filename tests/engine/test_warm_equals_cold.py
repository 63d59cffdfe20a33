"""The same request gives the same greedy tokens from device, from host, or from nothing; alone or in company. Real model path."""

from pathlib import Path

import pytest
import torch

from engine.api import RequestId, Tier
from engine.models.batch import allocate_pools
from engine.models.qwen3_5 import Qwen35Model
from engine.planner.step import Budget
from engine.weights import load_model
from tests.engine.rig import Rig
from tests.engine.tiny_weights import write_tiny_weights

CONTEXT = 1024
NEVER = 319
OUTPUT = 12


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Qwen35Model:
    directory: Path = tmp_path_factory.mktemp("weights")
    write_tiny_weights(directory)
    return load_model(directory, torch.device("cpu"), torch.float32)


def rig_with(
    model: Qwen35Model,
    cells: int = 200,
    host_cells: int = 200,
    lanes: int = 4,
    budget: Budget = Budget(1024, 64),  # noqa: B008 - a frozen value
) -> Rig:
    """Pools full of poison: reading what was not written would show."""
    pools = allocate_pools(model.config, cells, lanes, 64, torch.float32, torch.device("cpu"))
    for pool in (pools.kv, pools.recurrent, pools.conv):
        pool.fill_(torch.nan)
    return Rig(
        host_cells=host_cells,
        context=CONTEXT,
        budget=budget,
        real=(model, pools),
        stop_tokens=frozenset({NEVER}),
    )


def prompt(length: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 300, (length,), generator=generator).tolist()


def cold(model: Qwen35Model, tokens: list[int], count: int = OUTPUT) -> list[int]:
    """From nothing, alone, in one chunk."""
    rig = rig_with(model)
    return said(rig, rig.ask(tokens, max_tokens=count, save_tip=False))


def said(rig: Rig, request: RequestId) -> list[int]:
    return rig.output(request)


@pytest.mark.parametrize("cut", [1, 63, 64, 65, 200, 255])
def test_from_a_device_checkpoint(model: Qwen35Model, cut: int) -> None:
    rig = rig_with(model)
    rig.ask(prompt(256), anchors=(cut,), max_tokens=1, save_tip=False)
    request = rig.ask(prompt(256), "b", max_tokens=OUTPUT)
    assert rig.started(request).reused_tokens == cut
    assert said(rig, request) == cold(model, prompt(256))


@pytest.mark.parametrize("cut", [1, 64, 201])
def test_from_a_host_checkpoint(model: Qwen35Model, cut: int) -> None:
    rig = rig_with(model, cells=18)
    rig.ask(prompt(256), anchors=(cut,), max_tokens=1, save_tip=False)
    rig.ask(prompt(1000, seed=1), "other", max_tokens=1, save_tip=False)
    assert rig.checkpoints("a")[cut].tier is Tier.HOST
    request = rig.ask(prompt(256), "b", max_tokens=OUTPUT)
    started = rig.started(request)
    assert started.source is not None
    assert (started.reused_tokens, started.source.tier) == (cut, Tier.HOST)
    assert said(rig, request) == cold(model, prompt(256))


def test_turn_after_turn(model: Qwen35Model) -> None:
    rig, tokens = rig_with(model), prompt(70)
    for turn in range(5):
        request = rig.ask(tokens, max_tokens=OUTPUT)
        assert said(rig, request) == cold(model, tokens)
        line = rig.line(tokens, request)
        tokens = [*line, *prompt(17 + turn, seed=turn)]
        assert turn == 0 or rig.started(request).reused_tokens > 0


def test_in_company(model: Qwen35Model) -> None:
    """Chunks of 64 beside decodes, four at once, one arriving late."""
    rig = rig_with(model, budget=Budget(100, 64))
    prompts = [prompt(30 + 90 * n, seed=n) for n in range(4)]
    requests = [rig.submit(p, f"c{n}", max_tokens=OUTPUT) for n, p in enumerate(prompts[:3])]
    for _ in range(3):
        rig.step()
    requests.append(rig.submit(prompts[3], "c3", max_tokens=OUTPUT))
    rig.run()
    for tokens, request in zip(prompts, requests, strict=True):
        assert said(rig, request) == cold(model, tokens)


def test_forks_and_an_edit_in_the_middle(model: Qwen35Model) -> None:
    rig = rig_with(model)
    first = rig.ask(prompt(150), anchors=(100,), max_tokens=5)
    tip = rig.line(prompt(150), first)
    edited = [*prompt(150)[:120], *prompt(30, seed=4)]
    prompts = [[*tip, *prompt(9, seed=1)], [*tip, *prompt(80, seed=2)], edited]
    requests = [rig.submit(p, f"f{n}", max_tokens=OUTPUT) for n, p in enumerate(prompts)]
    rig.run()
    assert [rig.started(r).reused_tokens for r in requests] == [len(tip), len(tip), 100]
    for tokens, request in zip(prompts, requests, strict=True):
        assert said(rig, request) == cold(model, tokens)


def test_after_preemption(model: Qwen35Model) -> None:
    rig = rig_with(model, cells=20, lanes=3)
    requests = {n: rig.submit(prompt(380, seed=n), f"c{n}", max_tokens=90) for n in range(3)}
    rig.run()
    assert rig.scheduler.counters.preemptions > 0
    for number, request in requests.items():
        assert said(rig, request) == cold(model, prompt(380, seed=number), 90)
