"""What it costs to take a stored state up again, beside computing it. Knows budgets and tiers as the door shows them."""

import dataclasses
import statistics
import time

import torch

from bench.door import Answer, EngineDoor, engine
from bench.prompts import Prompts
from bench.registry import Bar, Bench, Case, Measured, NotMeasured, WrongAnswer, require_equal
from engine.api import Anchor, AnchorKind, Prompt, Tier
from engine.config import EngineConfig

PROMPT = 8192
ANSWER = 8
PROMPT_END = (Anchor(AnchorKind.PROMPT_END, 1),)
SPARE_PAGES = 8
DISK_BYTES = 4 << 30
WRITTEN_WITHIN_S = 30.0


def restore_from_host(bench: Bench) -> Measured:
    """A cold prompt of the same length is computed before each restore: the baseline, and what drives the state off the device."""
    prompts = Prompts(bench.model.text)
    stored = prompts.cold(bench.share(PROMPT))
    restored, computed = [], []
    with engine(_narrow(bench)) as door:
        reference = _store(door, stored)
        for _ in range(bench.repetitions):
            computed.append(_compute(door, prompts.cold(bench.share(PROMPT))))
            again = door.ask(stored, ANSWER, "stored", continuation="stored", anchors=PROMPT_END)
            _check(again, reference, "host")
            restored.append(again.wait)
    return _measured(restored, computed)


def restore_from_disk(bench: Bench) -> Measured | NotMeasured:
    """The engine is started anew before each restore, so the state can only come from its files."""
    if "disk_dir" not in {field.name for field in dataclasses.fields(EngineConfig)}:
        return NotMeasured("the engine has no disk tier: EngineConfig knows no disk_dir")
    prompts = Prompts(bench.model.text)
    stored = prompts.cold(bench.share(PROMPT))
    directory = bench.scratch / f"disk-{bench.model.name}"
    config = bench.config(disk_dir=str(directory), disk_bytes=DISK_BYTES)
    with engine(config) as door:
        reference = _store(door, stored)
        _wait_for_files(door)
    restored, computed = [], []
    for _ in range(bench.repetitions):
        with engine(config) as door:
            door.ask(prompts.cold(256), ANSWER, "warm-up")
            computed.append(_compute(door, prompts.cold(bench.share(PROMPT))))
            door.rendering_s(stored)
            again = door.ask(stored, ANSWER, "stored", continuation="stored", anchors=PROMPT_END)
        source = again.started.source if again.started else None
        if source is None:
            return NotMeasured("nothing was found on the disk after a restart")
        _check(again, reference, "disk")
        restored.append(again.wait)
    return _measured(restored, computed)


def _wait_for_files(door: EngineDoor) -> None:
    """Until the engine has written what it writes behind. Raises RuntimeError when it never does."""
    held, deadline = 0, time.monotonic() + WRITTEN_WITHIN_S
    while time.monotonic() < deadline:
        time.sleep(0.5)
        before = held
        held = sum(tier.used_bytes for tier in door.snapshot().tiers if tier.tier == "disk")
        if 0 < held == before:
            return
    raise RuntimeError(f"nothing was written to the disk within {WRITTEN_WITHIN_S:.0f} s")


def _narrow(bench: Bench) -> dict[str, object]:
    """A device that holds one long context and not two."""
    tokens = bench.share(PROMPT) + 256
    config, page_tokens = bench.model.config, EngineConfig(model_dir="").page_tokens
    page = torch.Size(config.page_shape(page_tokens)).numel() * 4
    image = (torch.Size(config.recurrent_shape).numel() + torch.Size(config.conv_shape).numel()) * 4
    cells = -(-tokens // page_tokens) + 2 * -(-image // page) + SPARE_PAGES
    return bench.config(
        context_tokens=tokens, device_bytes=cells * page, host_bytes=3 * cells * page
    )


def _store(door: EngineDoor, prompt: Prompt) -> Answer:
    """Computes the prompt from nothing and leaves its state behind; the answer is the reference."""
    answer = door.ask(prompt, ANSWER, "stored", continuation="stored", anchors=PROMPT_END)
    cold = door.ask(prompt, ANSWER, "reference")
    require_equal("two cold runs", answer.tokens, cold.tokens)
    return cold


def _compute(door: EngineDoor, prompt: Prompt) -> float:
    door.rendering_s(prompt)
    answer = door.ask(prompt, 1, "computed", priority=9)
    assert answer.started is not None
    if answer.started.reused_tokens:
        raise WrongAnswer("a prompt that shall be computed was partly reused")
    return answer.wait


def _check(answer: Answer, reference: Answer, tier: str) -> None:
    assert answer.started is not None
    source = answer.started.source
    if source is None or source.tier != tier:
        where = Tier(source.tier).value if source else "nowhere"
        raise WrongAnswer(f"the state shall come from {tier}, it came from {where}")
    require_equal(f"resumed from {tier}", answer.tokens, reference.tokens)


def _measured(restored: list[float], computed: list[float]) -> Measured:
    mine, other = statistics.median(restored), statistics.median(computed)
    return Measured(f"{mine * 1000:.1f} ms", f"{other * 1000:.0f} ms", 100 * mine / other)


CASES = (
    Case(
        "restore-host",
        "first token on an 8K state from host / prefill",
        Bar(3, at_least=False, unit=" %"),
        restore_from_host,
    ),
    Case(
        "restore-disk",
        "first token on an 8K state from disk / prefill",
        Bar(8, at_least=False, unit=" %"),
        restore_from_disk,
    ),
)
