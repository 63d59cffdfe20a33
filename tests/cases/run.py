"""Runs cases one after the other, each on a proxy of its own or, where that is the same, on one that they share. Knows no check."""

import asyncio
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.cases.case import Case
from tests.cases.controls import CONTROLS, NotReached
from tests.cases.evidence import Evidence
from tests.cases.judge import absent, judge
from tests.cases.lookback import look_back
from tests.cases.macros import UnknownMacro
from tests.cases.play import Play, options_of, shares_a_proxy
from tests.cases.prompt_text import PromptTokens
from tests.cases.proxy import Proxy, Unsupported
from tests.cases.report import Result

SHARED = "shared"


class Runner:
    """Use it in `with`. `kept` is a folder for logs and databases; None: they are thrown away."""

    def __init__(self, kept: Path | None = None) -> None:
        self._text = PromptTokens()
        self._closing = ExitStack()
        self._folder = kept
        self._shared: Proxy | None = None

    def __enter__(self) -> "Runner":
        if self._folder is None:
            made = tempfile.TemporaryDirectory(prefix="cases-")
            self._folder = Path(self._closing.enter_context(made))
        return self

    def __exit__(self, *_: object) -> None:
        if self._shared is not None:
            asyncio.run(self._shared.stop())
        self._closing.close()

    def run(self, case: Case) -> Result:
        """Plays and judges one. Whatever goes wrong is the case's result."""
        lack = absent(case)
        if lack:
            return Result(case.id, skipped=lack)
        began = time.monotonic()
        try:
            evidence = self._play(case)
        except (Unsupported, UnknownMacro) as missing:
            return Result(case.id, skipped=str(missing))
        except NotReached as why:
            return Result(case.id, time.monotonic() - began, broken=str(why))
        except Exception as error:
            broken = f"{type(error).__name__}: {error}"
            return Result(case.id, time.monotonic() - began, broken=broken)
        return judged(case, evidence, time.monotonic() - began)

    def _play(self, case: Case) -> Evidence:
        assert self._folder is not None
        if shares_a_proxy(case):
            self._shared = self._shared or Proxy(self._folder / SHARED, {})
            return asyncio.run(self._play_on(case, self._shared))
        return asyncio.run(self._play_alone(case, Proxy(self._folder / case.id, options_of(case))))

    async def _play_alone(self, case: Case, proxy: Proxy) -> Evidence:
        try:
            return await self._play_on(case, proxy)
        finally:
            await proxy.stop()

    async def _play_on(self, case: Case, proxy: Proxy) -> Evidence:
        play = Play(case, proxy, self._text)
        await play.run(CONTROLS)
        return await look_back(play)


def judged(case: Case, evidence: Evidence, seconds: float) -> Result:
    verdicts = [(check, judge(check, evidence)) for check in case.checks]
    return Result(
        case.id,
        seconds,
        failed=tuple((check, why) for check, why in verdicts if why and check.must),
        missed=tuple((check, why) for check, why in verdicts if why and not check.must),
    )
