"""The proxy's bars, measured: runs the cases and prints their table. Exit status 1 when a bar is missed.

python -m bench.proxy [--only NAME] [--quick]
"""

import argparse
import os
import platform
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.proxy_cases import CASES
from bench.proxy_cases.given import ProxyBench
from bench.report import BESIDE, Row, processor, table, verdict


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    print(conditions(options.quick), flush=True)
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        rows = list(_rows(options, Path(scratch)))
    print(f"\n{table(rows, BESIDE)}\n\n{verdict(rows)}")
    return 0 if all(row.met for row in rows) else 1


def conditions(quick: bool) -> str:
    """Hardware and versions that the figures hold for."""
    lines = [
        f"{processor()}, {os.cpu_count()} cores; "
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    ]
    if quick:
        lines.append("quick: an eighth of the turns and conversations; no verdict on the bars")
    return "\n".join(lines)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.proxy", description=__doc__.splitlines()[0]
    )
    names = [case.name for case in CASES]
    parser.add_argument(
        "--only", choices=names, action="append", help="this case (may be repeated)"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes: does it work at all?")
    return parser.parse_args(arguments)


def _rows(options: argparse.Namespace, scratch: Path) -> Iterator[Row]:
    bench = ProxyBench(scratch, options.quick)
    for case in CASES:
        if options.only is None or case.name in options.only:
            row = Row(case, "", case.outcome(bench))
            print("  ".join(filter(None, row.cells())), flush=True)
            yield row


if __name__ == "__main__":
    sys.exit(main())
