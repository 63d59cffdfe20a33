"""Runs the soak and tells how it went. Exit status 1 unless every answer was right and nothing was left behind.

python -m bench.soak [--minutes N] [--seed N] [--model DIR]
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from bench.models import DEMO
from bench.soak.faults import Disk, has_disk_tier
from bench.soak.reference import Reference
from bench.soak.run import Soak
from bench.soak.tally import Tally

CONTEXT_TOKENS = 3072
TIER_BYTES = 24 << 20
"""A few conversations each, so that states move between tiers and are dropped all the time."""
DISK_BYTES = 64 << 20


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.soak", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default 10)")
    parser.add_argument(
        "--seed", type=int, default=1, help="of everything that is chosen by chance"
    )
    parser.add_argument("--model", type=Path, default=DEMO, help="a model directory")
    options = parser.parse_args(arguments)
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="soak-") as scratch:
        disk = Disk(Path(scratch)) if has_disk_tier() else None
        if disk is None:
            print("the engine has no disk tier: no full disk, no damaged files in this run")
        reference = Reference(options.model, CONTEXT_TOKENS, threads=1)
        try:
            config = engine_config(options.model, disk)
            Soak(config, reference, Random(options.seed), tally, disk).run(60 * options.minutes)
        finally:
            reference.close()
    print(tally.summary())
    return 0 if tally.clean else 1


def engine_config(model: Path, disk: Disk | None) -> dict[str, Any]:
    """Small tiers, and the engine's own check of its books after every step."""
    config: dict[str, Any] = {
        "model_dir": str(model),
        "context_tokens": CONTEXT_TOKENS,
        "device_bytes": TIER_BYTES,
        "host_bytes": TIER_BYTES,
        "threads": 1,
        "max_waiting": 4,
        "check_integrity": True,
    }
    if disk is None:
        return config
    return config | {"disk_dir": str(disk.directory), "disk_bytes": DISK_BYTES}


if __name__ == "__main__":
    sys.exit(main())
