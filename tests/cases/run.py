"""Runs cases one after the other, each on a proxy of its own. Knows the order of reading, playing and judging; no check."""

import asyncio
import tempfile
import time
from pathlib import Path

from tests.cases.case import Case
from tests.cases.controls import CONTROLS, NotReached
from tests.cases.judge import absent, judge
from tests.cases.macros import UnknownMacro
from tests.cases.play import play
from tests.cases.prompt_text import PromptTokens
from tests.cases.proxy import Unsupported
from tests.cases.report import Result


def run_case(case: Case, text: PromptTokens, kept: Path | None = None) -> Result:
    """`kept` is a folder for what the case leaves behind: log, database. None: it is thrown away."""
    lack = absent(case)
    if lack:
        return Result(case.id, skipped=lack)
    with tempfile.TemporaryDirectory(prefix=f"case-{case.id}-") as folder:
        began = time.monotonic()
        try:
            evidence = asyncio.run(play(case, kept or Path(folder), text, CONTROLS))
        except (Unsupported, UnknownMacro) as lack_of:
            return Result(case.id, skipped=str(lack_of))
        except NotReached as why:
            return Result(case.id, time.monotonic() - began, broken=str(why))
        except Exception as error:
            broken = f"{type(error).__name__}: {error}"
            return Result(case.id, time.monotonic() - began, broken=broken)
        seconds = time.monotonic() - began
    verdicts = [(check, judge(check, evidence)) for check in case.checks]
    return Result(
        case.id,
        seconds,
        failed=tuple((check, why) for check, why in verdicts if why and check.must),
        missed=tuple((check, why) for check, why in verdicts if why and not check.must),
    )
