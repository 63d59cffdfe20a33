"""Runs the soak and tells how it went. Exit status 1 unless every answer was right, nothing was left behind and all happened that should.

python -m bench.soak [--minutes N] [--seed N] [--model DIR]
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from bench.models import lively
from bench.soak.faults import Disk
from bench.soak.reference import Reference
from bench.soak.run import REQUIRED, Soak
from bench.soak.tally import Tally

CONTEXT_TOKENS = 3072
DEVICE_BYTES = 7 << 20
"""Little more than one whole context, so that requests push each other out."""
HOST_BYTES = 12 << 20
"""A few conversations, so that states move between tiers and are dropped all the time."""
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
    return {
        "model_dir": str(model),
        "context_tokens": CONTEXT_TOKENS,
        "device_bytes": DEVICE_BYTES,
        "host_bytes": HOST_BYTES,
        "disk_dir": str(disk.directory),
        "disk_bytes": DISK_BYTES,
        "threads": 1,
        "max_waiting": 4,
    }


if __name__ == "__main__":
    sys.exit(main())
