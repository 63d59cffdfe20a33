"""The step that is computed while the last one's tokens become text. Knows when there is sure to be one; no text, no tensors.

    main thread   … accept n │ begin n+1 │ text and events of n … │ run n+1 │ accept n+1 │ begin n+2 │ …
    background                └─ n+1 ───────────────────┘                                └─ n+2 ──────

It is begun only where nothing that is yet to be found out can forbid it, so it is never thrown away. While it runs, nobody
touches what it works on: commands are acted on behind it, and who must leave because of a fault waits for its end.
"""

from collections.abc import Sequence as Ordered
from dataclasses import dataclass, field

from engine.planner.step import Chunk
from engine.runner import Runner
from engine.scheduler import Scheduler
from engine.sequence import Work


@dataclass(slots=True)
class Ahead:
    """`work` is the step that was begun, empty if none was."""

    scheduler: Scheduler
    runner: Runner
    work: list[Work] = field(default_factory=list)

    def take(self) -> list[Work]:
        """What was begun, to be run now."""
        work, self.work = self.work, []
        return work

    def begin(self, done: Ordered[Work], now: float) -> None:
        """Begins the step behind `done`, of which all sequences are known to go on, if it is one more token for each of them and
        nobody else wants a part in it.
        """
        if not self.runner.begins(len(done)):
            return
        work = self._next(done, now)
        if work:
            self.runner.begin(work)
            self.work = work

    def _next(self, done: Ordered[Work], now: float) -> list[Work]:
        scheduler = self.scheduler
        if scheduler.waiting or len(done) != len(scheduler.running):
            return []
        work = []
        for lane in [item.sequence.lane for item in done]:
            if lane is None or not scheduler.running[lane].urgent:
                return []
            item = scheduler.reserve(Chunk(lane, 1), now)
            if item is None:
                return []
            work.append(item)
        scheduler.counters.steps += 1
        return work
