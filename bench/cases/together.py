"""Long prompts that arrive together, beside the same ones strictly one after another. Knows times to first token only."""

import statistics
import time
from collections.abc import Sequence

from bench.door import EngineDoor, engine
from bench.prompts import Prompts
from bench.registry import Bar, Bench, Case, Measured, interleaved, require_equal
from engine.api import Anchor, AnchorKind, Prompt

REQUESTS, PROMPT, OWN, ANSWER = 4, 8192, 256, 270
"""The answer is as long as the median of recorded agents' answers (callanjfox/kv-cache-tester, 682 of them)."""
HEAD = (Anchor(AnchorKind.HEAD, 1),)


def apart(bench: Bench) -> Measured:
    return _compare(bench, head_tokens=0)


def shared(bench: Bench) -> Measured:
    """All but the last tokens of each prompt are one system text. Those one after another share nothing: each has its own tenant."""
    return _compare(bench, head_tokens=bench.share(PROMPT) - OWN)


def _compare(bench: Bench, head_tokens: int) -> Measured:
    prompts = Prompts(bench.model.text)
    tenants = iter(range(10_000))

    def fresh() -> list[Prompt]:
        head = prompts.head(head_tokens)
        return [prompts.cold(bench.share(PROMPT), head) for _ in range(REQUESTS)]

    with engine(bench.config()) as door:
        several = fresh()
        _, ours = _together(door, several, "gate")
        _, reference = _serial(door, several, [f"gate {each}" for each in range(REQUESTS)])
        for answer, alone in zip(ours, reference, strict=True):
            require_equal("a prompt among others", answer, alone)
        mine, other = interleaved(
            (
                lambda: _together(door, fresh(), f"t{next(tenants)}")[0],
                lambda: _serial(door, fresh(), [f"t{next(tenants)}" for _ in range(REQUESTS)])[0],
            ),
            bench.repetitions,
        )
    return Measured(f"{mine:.2f} s", f"{other:.2f} s", mine / other)


Timed = tuple[float, list[tuple[int, ...]]]
"""Mean time to first token, counted from one common start; the answers."""


def _together(door: EngineDoor, prompts: Sequence[Prompt], tenant: str) -> Timed:
    begun = time.perf_counter()
    answers = [door.begin(prompt, ANSWER, tenant, anchors=HEAD) for prompt in prompts]
    door.finish(*answers)
    mean = statistics.mean(each.first - begun for each in answers)
    return mean, [each.tokens for each in answers]


def _serial(door: EngineDoor, prompts: Sequence[Prompt], tenants: Sequence[str]) -> Timed:
    """Each is sent when the one before has ended, as an engine does that runs one request at a time."""
    begun = time.perf_counter()
    answers = [
        door.ask(prompt, ANSWER, tenant) for prompt, tenant in zip(prompts, tenants, strict=True)
    ]
    mean = statistics.mean(each.first - begun for each in answers)
    return mean, [each.tokens for each in answers]


CASES = (
    Case(
        "four-cold",
        "mean first token of four cold 8K prompts: together / serial",
        Bar(0.7, at_least=False, unit="×"),
        apart,
    ),
    Case(
        "four-shared-head",
        "the same with a common head: together / serial",
        Bar(0.4, at_least=False, unit="×"),
        shared,
    ),
)
