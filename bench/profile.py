"""Where a bar's time goes: torch's profiler around the engine's own steps. Says which operators, and what is left to Python.

python -m bench.profile {prefill,decode,streams} [--model NAME] [--tokens N] [--threads N]
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from bench.engine import MODELS
from bench.in_process import InProcess
from bench.prompts import Prompts
from engine.api import ContinuationId, Retention

SHOWN = 18
STREAMS = 8


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.profile", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("what", choices=("prefill", "decode", "streams"))
    parser.add_argument("--model", choices=list(MODELS), default="demo")
    parser.add_argument("--tokens", type=int, help="of the prompt, or of each answer")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        model = MODELS[options.model](Path(scratch))
        engine = InProcess(model, options.threads, max_lanes=STREAMS)
        run(engine, options.what, options.tokens or (8192 if options.what == "prefill" else 128))
    return 0


def run(engine: InProcess, what: str, tokens: int) -> None:
    """Once unseen to warm up, once by the clock, once under the profiler, which slows everything down."""
    prompts = Prompts(engine.text)
    prompt, answer = (tokens, 1) if what == "prefill" else (64, tokens)
    requests = STREAMS if what == "streams" else 1

    def once() -> tuple[int, float]:
        for number in range(requests):
            retention = Retention(ContinuationId(f"c{number}"), 1, 0.0)
            engine.loop.handle(engine.prompted(prompts.cold(prompt), retention, answer))
        begun = time.perf_counter()
        return engine.finish(), time.perf_counter() - begun

    once()
    steps, wall = once()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        once()
    averages = profiler.key_averages()
    operators = sum(each.self_cpu_time_total for each in averages) / 1e6
    print(averages.table(sort_by="self_cpu_time_total", row_limit=SHOWN, max_name_column_width=48))
    print(
        f"{what}: {steps} steps in {wall:.3f} s, {1000 * wall / steps:.2f} ms each, {torch.get_num_threads()} threads; "
        f"under the profiler {operators:.3f} s in operators, {sum(each.count for each in averages) / steps:.0f} calls a step"
    )


if __name__ == "__main__":
    sys.exit(main())
