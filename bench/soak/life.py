"""One engine process of a soak: its door, its log, what it tells of itself. Knows no conversations and no faults."""

import os
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.door import PLAIN, EngineDoor
from bench.soak.tally import Tally
from engine.api import Dropped, Event, Prepared, Snapshot, Tier

LOG_LINES = 30
REFUSALS = {"File too large": "full disks met", "its directory has vanished": "lost disks met"}
"""Kinds by what the disk tier says of itself then."""
COUNTERS = (
    "preemptions",
    "checkpoints_demoted",
    "checkpoints_left_to_disk",
    "checkpoints_dropped",
    "disk_checkpoints_written",
    "disk_checkpoints_restored",
    "disk_restores_failed",
    "disk_files_set_aside",
)
"""Those of the engine that a tally adds up."""


class Life:
    """From its start until `end`. Raises what EngineDoor raises."""

    def __init__(self, config: Mapping[str, Any], patience_s: float, tally: Tally) -> None:
        self._tally = tally
        self._counters: Mapping[str, int] = {}
        self._note = ""
        self._log: deque[str] = deque(maxlen=LOG_LINES)
        reading, writing = os.pipe()
        self._reader = threading.Thread(target=self._read_log, args=(reading,), daemon=True)
        self._reader.start()
        try:
            self.door = EngineDoor(config, PLAIN, patience_s, self._hear, writing)
        finally:
            os.close(writing)
        self._handles = self._open_handles()

    @property
    def pid(self) -> int:
        return self.door.process.pid

    @property
    def handles_left_open(self) -> int:
        """Files that are open now and weren't when it began."""
        return self._open_handles() - self._handles

    def end(self) -> int:
        """Hangs up and waits; the exit status."""
        self.door.close()
        self._reader.join(timeout=10)
        for name in COUNTERS:
            self._tally.note(name, self._counters.get(name, 0))
        return self.door.process.returncode

    def last_words(self) -> str:
        """The end of its log."""
        return "".join(self._log)

    def _hear(self, event: Event) -> None:
        if isinstance(event, Dropped):
            self._tally.note(f"dropped: {event.reason}", len(event.checkpoints))
        if isinstance(event, Prepared):
            self._tally.note(f"prepared: {event.outcome}")
        if isinstance(event, Snapshot):
            self._counters = event.counters
            self._look_at_disk(event)

    def _look_at_disk(self, snapshot: Snapshot) -> None:
        note = next((tier.note for tier in snapshot.tiers if tier.tier is Tier.DISK), "")
        if note not in ("", self._note):
            why = note.removeprefix("not written to: ")
            self._tally.note(REFUSALS.get(why, f"disk refused: {why}"))
        self._note = note

    def _open_handles(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def _read_log(self, handle: int) -> None:
        with os.fdopen(handle, errors="replace") as lines:
            self._log.extend(lines)
