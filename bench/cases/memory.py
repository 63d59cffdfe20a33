"""The engine process's own memory, and whether it grows with what it has served. Knows /proc and the door."""

import subprocess
import sys

import torch

from bench.door import EngineDoor, engine, resident_bytes
from bench.models import BenchModel
from bench.prompts import Prompts
from bench.registry import Bar, Bench, Case, Measured, WrongAnswer
from engine.api import Anchor, AnchorKind

MB = 1_000_000
POOL_BYTES = 48 << 20
CONTEXT, PROMPT = 2048, 96
REQUESTS, WARM_UP = 10_000, 1000
AT_ONCE = 4
ANCHORS = (Anchor(AnchorKind.PROMPT_END, 1),)


def own_memory(bench: Bench) -> Measured:
    """Both pools are filled first, so that all of their bytes are in main memory and can be taken off."""
    with engine(_config(bench)) as door:
        prompts = Prompts(bench.model.text)
        while not _full(door):
            _serve(door, prompts, 64)
        _serve(door, prompts, 64)
        whole = door.resident_bytes()
        pools = sum(tier.total_bytes for tier in door.snapshot().tiers)
    lanes = AT_ONCE * _image_bytes(bench.model)
    weights = bench.model.weight_bytes()
    own = whole - weights - pools - lanes
    parts = f"{whole / MB:.0f} resident, less {weights / MB:.0f} weights, {(pools + lanes) / MB:.0f} pools"
    return Measured(
        f"{own / MB:.0f} MB ({_bare_torch() / MB:.0f} of them torch, imported)", parts, own / MB
    )


def _bare_torch() -> int:
    """Resident bytes of a process that has only imported torch: what no engine on it goes below."""
    program = "import torch; print(open('/proc/self/status').read())"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return resident_bytes(done.stdout)


def growth(bench: Bench) -> Measured:
    with engine(_config(bench)) as door:
        prompts = Prompts(bench.model.text)
        while not _full(door):
            _serve(door, prompts, 64)
        _serve(door, prompts, bench.share(WARM_UP))
        before = door.resident_bytes()
        _serve(door, prompts, bench.share(REQUESTS))
        after = door.resident_bytes()
    return Measured(
        f"{(after - before) / MB:+.1f} MB", f"{before / MB:.0f} MB before", (after - before) / MB
    )


def _config(bench: Bench) -> dict[str, object]:
    return bench.config(
        context_tokens=CONTEXT,
        device_bytes=POOL_BYTES,
        host_bytes=POOL_BYTES,
        max_lanes=AT_ONCE,
    )


def _full(door: EngineDoor) -> bool:
    """Whether checkpoints were dropped for want of room: then both tiers are full."""
    return door.snapshot().counters["checkpoints_dropped"] > 0


def _serve(door: EngineDoor, prompts: Prompts, requests: int) -> None:
    """Requests of new continuations, several at once, each leaving two checkpoints behind. Raises WrongAnswer if a lane stays taken."""
    for _ in range(0, requests, AT_ONCE):
        answers = [
            door.begin(prompts.cold(PROMPT), 2, "t", anchors=ANCHORS, save_tip=True)
            for _ in range(AT_ONCE)
        ]
        door.finish(*answers)
    if door.snapshot().lanes:
        raise WrongAnswer("all requests have ended, and a lane is taken")


def _image_bytes(model: BenchModel) -> int:
    config = model.config
    numbers = torch.Size(config.recurrent_shape).numel() + torch.Size(config.conv_shape).numel()
    return numbers * torch.float32.itemsize


CASES = (
    Case(
        "own-memory",
        "engine's memory besides weights and pools",
        Bar(200, at_least=False, unit=" MB"),
        own_memory,
    ),
    Case(
        "memory-growth",
        "growth of memory over 10,000 requests",
        Bar(4, at_least=False, unit=" MB"),
        growth,
        models=("demo",),
    ),
)
