"""Runs the soak and tells how it went. Exit status 1 unless every answer was right, nothing was left behind and all happened that should.

python -m bench.soak [--minutes N] [--seed N] [--model DIR]
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from math import prod
from pathlib import Path
from random import Random
from typing import Any

from bench.models import lively
from bench.soak.faults import Disk
from bench.soak.reference import PAGE_TOKENS, Reference
from bench.soak.run import REQUIRED, Soak
from bench.soak.tally import Tally
from engine.config import KV_DTYPE_BYTES
from engine.models.config import ModelConfig

CONTEXT_TOKENS = 3072
DEVICE_CONTEXTS, HOST_CONTEXTS = 1.15, 2
"""Room in whole contexts: requests push each other out, and states move between tiers and are dropped all the time."""
DISK_BYTES = 64 << 20


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.soak", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default 10)")
    parser.add_argument(
        "--seed", type=int, default=1, help="of everything that is chosen by chance"
    )
    parser.add_argument(
        "--model", type=Path, help="a model directory (default: random weights made for this)"
    )
    options = parser.parse_args(arguments)
    tally = Tally(REQUIRED)
    with tempfile.TemporaryDirectory(prefix="soak-") as scratch:
        disk = Disk(Path(scratch) / "disk")
        disk.directory.mkdir()
        model = options.model or lively(Path(scratch)).directory
        reference = Reference(model, CONTEXT_TOKENS, threads=1)
        try:
            config = engine_config(model, disk)
            Soak(config, reference, Random(options.seed), tally, disk).run(60 * options.minutes)
        finally:
            reference.close()
    print(tally.summary())
    return 0 if tally.clean else 1


def engine_config(model: Path, disk: Disk) -> dict[str, Any]:
    """Small tiers, one thread, a short queue."""
    page = ModelConfig.from_file(model).page_shape(PAGE_TOKENS)
    context = CONTEXT_TOKENS // PAGE_TOKENS * prod(page) * KV_DTYPE_BYTES["float32"]
    return {
        "model_dir": str(model),
        "context_tokens": CONTEXT_TOKENS,
        "page_tokens": PAGE_TOKENS,
        "device_bytes": int(DEVICE_CONTEXTS * context),
        "host_bytes": int(HOST_CONTEXTS * context),
        "disk_dir": str(disk.directory),
        "disk_bytes": DISK_BYTES,
        "threads": 1,
        "max_lanes": 8,
        "max_waiting": 4,
    }


if __name__ == "__main__":
    sys.exit(main())
