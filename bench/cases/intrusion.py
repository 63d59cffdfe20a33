"""A short request that arrives while a long prompt is being computed, beside an idle engine. Knows times to first token only."""

import statistics

from bench.door import Answer, EngineDoor, engine
from bench.prompts import Prompts
from bench.registry import Bar, Bench, Case, Measured, require_equal
from engine.api import Prompt

LONG, SHORT, ANSWER = 32_768, 200, 16
ARRIVALS = (0.2, 0.5, 0.8)
"""How much of the long prompt is computed when a short request comes."""


def short_beside_long(bench: Bench) -> Measured:
    prompts = Prompts(bench.model.text)
    beside, idle = [], []
    with engine(bench.config()) as door:
        door.ask(prompts.cold(SHORT), ANSWER, "warm-up")
        for _ in range(max(1, bench.repetitions // 2)):
            several = [prompts.cold(SHORT) for _ in ARRIVALS]
            answers = _intrude(door, prompts.cold(bench.share(LONG)), several)
            for prompt, answer in zip(several, answers, strict=True):
                alone = door.ask(prompt, ANSWER, "idle")
                require_equal("a short request beside a long one", answer.tokens, alone.tokens)
                beside.append(answer.wait)
                idle.append(alone.wait)
    mine, other = statistics.median(beside), statistics.median(idle)
    return Measured(f"{mine * 1000:.0f} ms", f"{other * 1000:.0f} ms", mine / other)


def _intrude(door: EngineDoor, long: Prompt, short: list[Prompt]) -> list[Answer]:
    running = door.begin(long, 1, "long")
    answers: list[Answer] = []
    while not running.ended:
        door.take()
        tokens = running.started.prompt_tokens if running.started else 0
        due = [share for share in ARRIVALS if tokens and running.prompt_done >= share * tokens]
        while len(answers) < len(due):
            answers.append(door.begin(short[len(answers)], ANSWER, "short"))
    door.finish(*answers)
    return answers


CASES = (
    Case(
        "short-beside-long",
        "first token of 200 tokens during a 32K prefill / idle",
        Bar(4, at_least=False, unit="×"),
        short_beside_long,
    ),
)
