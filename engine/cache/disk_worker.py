"""The thread that talks to the disk: jobs in, outcomes out, reads before writes. Knows neither files nor checkpoints.

engine's thread    submit(work, then) ──▶ jobs ──▶ work()          worker's thread
                   collect() ◀────────── outcomes
                     then(outcome): here, so that nothing else needs a lock
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Job:
    work: Callable[[], Any]
    then: Callable[[Any], None]


class DiskWorker:
    """Jobs of one kind are done in the order they came. Without `start` nothing is done but by `run_next`. `on_done` is called on
    the worker's thread after each job. `pending` counts jobs whose outcome has not been collected.
    """

    def __init__(self) -> None:
        self.on_done: Callable[[], None] = lambda: None
        self._reads: deque[Job] = deque()
        self._writes: deque[Job] = deque()
        self._outcomes: deque[tuple[Job, Any]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None
        self.pending = 0

    def start(self) -> None:
        # A disk that hangs mustn't keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="disk", daemon=True)
        self._thread.start()

    def submit(
        self, work: Callable[[], T], then: Callable[[T | Exception], None], reading: bool = False
    ) -> None:
        """Queues `work`. What it returns or raises is handed to `then` by the next `collect`."""
        self.pending += 1
        with self._changed:
            (self._reads if reading else self._writes).append(Job(work, then))
            self._changed.notify_all()

    def collect(self) -> None:
        """Calls `then` for all that is done."""
        while self._outcomes:
            job, outcome = self._outcomes.popleft()
            self.pending -= 1
            job.then(outcome)

    def wait(self, timeout_s: float) -> bool:
        """Until something can be collected; False if that takes too long."""
        with self._changed:
            return self._changed.wait_for(lambda: bool(self._outcomes), timeout_s)

    def run_next(self) -> bool:
        """Does one job; False if there's none."""
        with self._changed:
            job = self._next()
        if job is not None:
            self._do(job)
        return job is not None

    def close(self, timeout_s: float) -> None:
        """Lets the job at hand end, for so long; the others are forgotten."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._reads or self._writes)
                if self._closed:
                    return
                job = self._next()
            if job is not None:
                self._do(job)

    def _next(self) -> Job | None:
        queue = self._reads or self._writes
        return queue.popleft() if queue else None

    def _do(self, job: Job) -> None:
        try:
            outcome = job.work()
        except Exception as error:
            outcome = error
        with self._changed:
            self._outcomes.append((job, outcome))
            self._changed.notify_all()
        self.on_done()
