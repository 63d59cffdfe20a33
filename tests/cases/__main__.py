"""The case runner as a command: python -m tests.cases [--cases FOLDER] [--keep FOLDER] [NAME …]. Knows its arguments; no case."""

import argparse
import sys
from pathlib import Path

from tests.cases.case import DATA, read_cases
from tests.cases.report import Result, lines, summary
from tests.cases.run import Runner


def main() -> int:
    """Exit status: 1 when a check that must hold doesn't, or a case broke off."""
    parser = argparse.ArgumentParser(prog="python -m tests.cases", description=__doc__)
    parser.add_argument("--cases", type=Path, default=DATA, help="folder of case files")
    parser.add_argument("--keep", type=Path, help="folder for logs and databases of the cases")
    parser.add_argument("names", nargs="*", help="only cases whose id begins so")
    options = parser.parse_args()
    cases = read_cases(options.cases)
    if not cases:
        print(f"{options.cases} holds no case files", file=sys.stderr)
        return 1
    results: list[Result] = []
    with Runner(options.keep) as runner:
        for case in cases:
            if not options.names or case.id.startswith(tuple(options.names)):
                results.append(runner.run(case))
                print("\n".join(lines(results[-1])), flush=True)
    print(summary(results))
    return 1 if any(result.word == "FAILED" for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
