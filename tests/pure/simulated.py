"""Workloads for the simulator's tests: tiny traces written by hand, and the recorded ones of tests/traces."""

import json
import lzma
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ninfer_proxy.simulate.cost import Cost
from ninfer_proxy.simulate.request import Request
from ninfer_proxy.simulate.workload import workload

TRACES = Path(__file__).parents[1] / "traces"
COST = Cost(prefill_tokens_s=1000, restore_bytes_s=1e9, token_bytes=1000, image_bytes=50_000)
HEAD = 64


def row(t: float, blocks: Sequence[int], *, out: int = 0, **more: Any) -> dict[str, Any]:
    """A request whose prompt is these blocks, whole; it takes a second and ends with an answer to a person."""
    known = {"t": t, "type": "n", "in": 64 * len(blocks), "out": out, "hash_ids": list(blocks)}
    return known | {"api_time": 1.0, "stop": "end_turn", "input_types": ["text"]} | more


def trace(rows: Iterable[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """Tools and instructions take the first block."""
    known = {"block_size": 64, "tool_tokens": HEAD // 2, "system_tokens": HEAD // 2}
    return known | {"requests": list(rows)} | more


def together(*traces: dict[str, Any], spread: float = 0.0) -> list[Request]:
    """A workload of traces called a, b, c and so on."""
    names = "abcdefghijklmnopqrstuvwxyz"
    files = [(name, json.dumps(each)) for name, each in zip(names, traces, strict=False)]
    return workload(files, spread)


def appending(times: Sequence[float], blocks: int = 4) -> dict[str, Any]:
    """A conversation that starts with so many blocks and appends one more at each of these times."""
    return trace(row(t, range(blocks + turn)) for turn, t in enumerate(times))


@cache
def recorded() -> tuple[tuple[str, str], ...]:
    """(name, text) of the recorded traces."""
    return tuple(
        (path.name.removesuffix(".json.xz"), lzma.decompress(path.read_bytes()).decode())
        for path in sorted(TRACES.glob("*.json.xz"))
    )
