"""The case runner as a command: python -m tests.cases [--cases FOLDER] [--keep FOLDER] [NAME …]. Knows its arguments; no case."""

import argparse
import sys
from pathlib import Path

from tests.cases.case import DATA, read_cases
from tests.cases.prompt_text import PromptTokens
from tests.cases.report import Result, lines, summary
from tests.cases.run import run_case


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
    text = PromptTokens()
    results: list[Result] = []
    for case in cases:
        if options.names and not case.id.startswith(tuple(options.names)):
            continue
        result = run_case(case, text, options.keep and options.keep / case.id)
        results.append(result)
        print("\n".join(lines(result)), flush=True)
    print(summary(results))
    return 1 if any(result.word == "FAILED" for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
