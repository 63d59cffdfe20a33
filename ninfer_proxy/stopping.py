"""The end of the service: one budget of time for all that has to end, and word of what is waited for. Knows none of it."""

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Iterator

log = logging.getLogger(__name__)

UNREMARKED_S = 0.5
"""What ends sooner isn't worth a line."""


class Stopping:
    """Mutable. The budget of `budget_s` seconds begins with the first signal, or with whatever has to end first; shares of it are
    counted from there, so that what ends early leaves its time to the rest.
    """

    def __init__(self, budget_s: float) -> None:
        self._budget_s = budget_s
        self._began: float | None = None

    def begin(self) -> None:
        if self._began is None:
            self._began = time.monotonic()

    def left_s(self, share: float = 1.0) -> float:
        """Seconds until this share of the budget is over; 0 when it is."""
        self.begin()
        assert self._began is not None
        return max(0.0, self._began + share * self._budget_s - time.monotonic())

    @contextlib.contextmanager
    def on_signals(
        self, stop: Callable[[], None], end_at_once: Callable[[], None]
    ) -> Iterator[None]:
        """While the context is open SIGINT and SIGTERM call `stop`, a second SIGINT (Ctrl-C) `end_at_once`. For the main thread."""

        def heard(number: signal.Signals) -> None:
            if self._began is None:
                log.info("stopping, within %g s; Ctrl-C again ends at once", self._budget_s)
                self.begin()
                stop()
            elif number is signal.SIGINT:
                log.warning("ended at once, as asked")
                end_at_once()

        loop = asyncio.get_running_loop()
        numbers = (signal.SIGINT, signal.SIGTERM)
        for number in numbers:
            loop.add_signal_handler(number, heard, number)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    async def finish(self, what: str, work: Awaitable[object], share: float = 1.0) -> bool:
        """Wait for `work` until its share of the budget is over; whether it ended in time. What it raises is logged."""
        task = asyncio.ensure_future(work)
        await asyncio.wait({task}, timeout=min(UNREMARKED_S, self.left_s(share)))
        if not task.done():
            log.info("stopping: waiting for %s, at most %.1f s more", what, self.left_s(share))
            await asyncio.wait({task}, timeout=self.left_s(share))
        if not task.done():
            log.error("stopping: %s did not end in time", what)
            return False
        if (error := task.exception()) is not None:
            log.error("stopping: %s ended with an error", what, exc_info=error)
        return True
