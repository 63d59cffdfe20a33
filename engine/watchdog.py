"""Ends a process whose step hangs. Knows when steps begin and end; doesn't know what they do."""

import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

LOOKS = 20


class Watchdog:
    """A context manager around each step, and a thread that looks at it LOOKS times within `limit_s`. Calls `end`, from that thread, when it
    has seen one step as often. Looks are counted instead of seconds, so a process that was stopped for a while, or a machine
    that slept, isn't taken for a step that hangs.
    """

    def __init__(self, limit_s: float, end: Callable[[], None]) -> None:
        self._limit_s = limit_s
        self._end = end
        # Rises as a step begins and as it ends: odd while one runs.
        self._serial = 0
        self._seen, self._looks = 0, 0
        self._stopped = threading.Event()

    def __enter__(self) -> None:
        self._serial += 1

    def __exit__(self, *_: object) -> None:
        self._serial += 1

    def start(self) -> None:
        """Watches until `stop`."""
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def look(self) -> bool:
        """One look; whether the running step has been seen often enough."""
        serial = self._serial
        again = serial == self._seen and serial % 2 == 1
        self._seen, self._looks = serial, self._looks + 1 if again else 0
        return self._looks == LOOKS

    def _watch(self) -> None:
        while not self._stopped.wait(self._limit_s / LOOKS):
            if self.look():
                log.critical(
                    "a step has been running for %g s (step_timeout_s): it hangs, and the engine ends",
                    self._limit_s,
                )
                self._end()
                return
