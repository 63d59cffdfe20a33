"""The engine's bars, measured: runs the cases and prints their table. Exit status 1 when a bar is missed.

python -m bench.engine [--only NAME] [--model NAME] [--quick] [--threads N]
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench import models
from bench.cases import CASES
from bench.registry import Bench
from bench.report import Row, conditions, table, verdict

MODELS: dict[str, Callable[[Path], models.BenchModel]] = {"demo": models.demo, "wide": models.wide}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    print(conditions(options.threads, options.quick), flush=True)
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        rows = list(_rows(options, Path(scratch)))
    print(f"\n{table(rows)}\n\n{verdict(rows)}")
    return 0 if all(row.met for row in rows) else 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    names = [case.name for case in CASES]
    parser = argparse.ArgumentParser(
        prog="python -m bench.engine", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--only", choices=names, action="append", help="this case (may be repeated)"
    )
    parser.add_argument("--model", choices=list(MODELS), help="this model alone")
    parser.add_argument("--quick", action="store_true", help="small sizes: does it work at all?")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="for each engine")
    return parser.parse_args(arguments)


def _rows(options: argparse.Namespace, scratch: Path) -> Iterator[Row]:
    for name, make in MODELS.items():
        chosen = [
            case
            for case in CASES
            if name in case.models
            and options.model in (None, name)
            and (options.only is None or case.name in options.only)
        ]
        if not chosen:
            continue
        bench = Bench(make(scratch), options.threads, options.quick, scratch)
        for case in chosen:
            row = Row(case, name, case.outcome(bench))
            print("  ".join(row.cells()), flush=True)
            yield row


if __name__ == "__main__":
    sys.exit(main())
