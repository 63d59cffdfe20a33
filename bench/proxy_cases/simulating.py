"""How long `simulate` takes for all traces, as a user starts it. Knows the command, not how it simulates."""

import json
import lzma
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.proxy_cases.given import ProxyBench, load
from bench.registry import Bar, Case, Measured, WrongAnswer

ROOT = Path(__file__).parents[2]
TRACES = ROOT / "tests" / "traces"
CLI = "from ninfer_proxy.cli import main; main()"
SLOTS = 12


def simulating(bench: ProxyBench) -> Measured:
    """All policies and the optimum over the recorded traces, the command's start included."""
    traces = unpacked(bench.scratch / "traces")
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", CLI, "simulate", *traces, "--slots", str(SLOTS), "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - begun
    if done.returncode:
        raise RuntimeError(done.stderr[-500:])
    told = json.loads(done.stdout)
    ours = require(told["policies"])
    beside = f"{told['requests']} requests; prefilled {ours:.2f} × the optimum; {load()}"
    return Measured(f"{len(traces)} traces", beside, seconds)


def unpacked(folder: Path) -> list[str]:
    folder.mkdir()
    for packed in sorted(TRACES.glob("*.json.xz")):
        (folder / packed.stem).write_bytes(lzma.decompress(packed.read_bytes()))
    return sorted(map(str, folder.iterdir()))


def require(policies: list[dict[str, Any]]) -> float:
    """How many times the optimum's tokens ours prefills. Raises WrongAnswer where the policies were given other prompts, or one
    beats the optimum.
    """
    prefilled = {each["policy"]: each["prefilled_tokens"] for each in policies}
    if len({each["prompt_tokens"] for each in policies}) != 1:
        raise WrongAnswer("the policies were not given the same prompts")
    if min(prefilled.values()) < prefilled["optimum"]:
        raise WrongAnswer(f"nothing prefills less than the optimum: {prefilled}")
    return prefilled["ours"] / prefilled["optimum"]


CASES = (
    Case(
        "simulate",
        "simulate over all recorded traces",
        Bar(20, at_least=False, unit=" s"),
        simulating,
    ),
)
