"""Prompts computed ahead while nothing is asked for: which wait, which has the lane, when it gives way. No requests, no tensors.

take ─▶ waiting ─begin▶ current (the one lane) ─▶ ended        one event for each, whatever the end
           ▲               │
           └──give way─────┘   what it has computed is kept if that spares enough; it goes on when all is quiet again

It goes on rather than being given up: most often somebody else's request came in between, and the turn it is meant for is still
to come. What ends it then is a request of its own continuation, a newer Prepare, or memory that has become short.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field

from engine.api import ContinuationId, Prepared, PrepareOutcome, RequestId, Retention, Tier
from engine.cache.store import Cache
from engine.entrance import Entrance
from engine.planner.admission import Limits, check_size
from engine.resuming import Resuming, Start, line_of
from engine.saving import Saving
from engine.sequence import Sequence, Work

MOST_WAITING = 16
"""Beyond that the one worth least is given up: nobody is idle for so long."""


@dataclass(slots=True)
class Preparing:
    """`chunk` tokens are computed in a step, as few as beside decoding, so that a request that comes now waits no longer than it would
    for those. Progress is kept if it spares `least` tokens. `forget` hears of continuations that may not be asked of any more.
    """

    cache: Cache
    saving: Saving
    limits: Limits
    chunk: int
    least: int
    forget: Callable[[Iterable[ContinuationId]], None]
    waiting: dict[ContinuationId, Sequence] = field(default_factory=dict)
    current: Sequence | None = None
    computed_tokens: int = 0
    interruptions: int = 0
    outcomes: Counter[PrepareOutcome] = field(default_factory=Counter)
    _kept_at: int = 0
    _blocked: bool = False

    @property
    def lanes(self) -> tuple[int, ...]:
        """The lane that it holds, if any."""
        lane = None if self.current is None else self.current.lane
        return () if lane is None else (lane,)

    @property
    def continuations(self) -> Set[ContinuationId]:
        return self.waiting.keys()

    @property
    def has_work(self) -> bool:
        """Whether there's something to compute now: state on its way from disk is waited for."""
        return bool(self.waiting) and not self._blocked

    def find(self, request: RequestId) -> Sequence | None:
        return next((e for e in self.waiting.values() if e.request_id == request), None)

    def take(self, sequence: Sequence, retention: Retention, now: float) -> list[Prepared]:
        """Queues it, in the place of an older one of the same continuation."""
        refusal = check_size(sequence.prompt_tokens, None, self.limits)
        if refusal is not None:
            return [self._ended(sequence, PrepareOutcome.REJECTED, refusal.message)]
        older = self.waiting.get(sequence.continuation)
        events = self.end_of(sequence.continuation, PrepareOutcome.REPLACED, now)
        sequence.parked = None if older is None else older.parked
        self.cache.reclaim.retentions[sequence.continuation] = retention
        self.waiting[sequence.continuation] = sequence
        self._blocked = False
        if len(self.waiting) > MOST_WAITING:
            message = f"{MOST_WAITING} prompts are waiting to be prepared already"
            least = min(self.waiting.values(), key=self._worth)
            events.append(self._end(least, PrepareOutcome.NO_ROOM, now, message))
        return events

    def make_way(self, continuation: ContinuationId, now: float) -> list[Prepared]:
        """A request of `continuation` has come: lane and pages are free afterwards."""
        self._blocked = False
        self.interruptions += self.current is not None
        self._leave(now)
        return self.end_of(continuation, PrepareOutcome.TAKEN_UP, now)

    def cancel(self, request: RequestId, now: float) -> list[Prepared]:
        sequence = self.find(request)
        return [] if sequence is None else [self._end(sequence, PrepareOutcome.CANCELLED, now)]

    def end_of(
        self, continuation: ContinuationId, outcome: PrepareOutcome, now: float, keep: bool = True
    ) -> list[Prepared]:
        """Ends what is prepared for the continuation; its progress is kept unless that's of no use any more."""
        sequence = self.waiting.get(continuation)
        return [] if sequence is None else [self._end(sequence, outcome, now, keep=keep)]

    def end_all(self, message: str, now: float) -> list[Prepared]:
        every = list(self.waiting.values())
        return [
            self._end(each, PrepareOutcome.CANCELLED, now, message, keep=False) for each in every
        ]

    def fail(self, message: str, now: float) -> list[Prepared]:
        """What has the lane, or was about to get it, can't go on."""
        sequence = self.current or self._next()
        if sequence is None:
            return []
        return [self._end(sequence, PrepareOutcome.FAILED, now, message, keep=False)]

    def begin(self, now: float) -> list[Prepared]:
        """Nothing is asked for: sees to one that has the lane, if any can have it."""
        events: list[Prepared] = []
        self._blocked = False
        while self.current is None and not self._blocked and (sequence := self._next()):
            events += self._enter(sequence, now)
        return events

    def plan(self) -> Work | None:
        """A step of the one that has the lane."""
        sequence = self.current
        if sequence is None:
            return None
        return Work(sequence, min(sequence.until_stop, self.chunk), sample=False)

    def settle(self, work: Work, now: float) -> list[Prepared]:
        """Notes that the work is computed and takes the checkpoint that is due."""
        sequence = work.sequence
        self.computed_tokens += work.tokens
        sequence.advance(work.tokens)
        kind = sequence.due()
        if kind is not None and self.saving.save(sequence, kind, now, lossless=True) is not None:
            self._kept_at = sequence.computed
        if sequence.remaining > 0:
            return []
        if self._kept_at == sequence.computed:
            return [self._end(sequence, PrepareOutcome.DONE, now)]
        return [self._end(sequence, PrepareOutcome.NO_ROOM, now, "its last checkpoint has no room")]

    def counted(self) -> dict[str, int]:
        return {
            "prepared_tokens": self.computed_tokens,
            "preparations_waiting": len(self.waiting),
            "preparations_interrupted": self.interruptions,
            **{f"preparations_{each}": self.outcomes[each] for each in PrepareOutcome},
        }

    def _next(self) -> Sequence | None:
        return max(self.waiting.values(), key=self._worth, default=None)

    def _worth(self, sequence: Sequence) -> tuple[int, float]:
        retention = self.cache.reclaim.retentions[sequence.continuation]
        return (retention.priority, retention.used_at)

    def _enter(self, sequence: Sequence, now: float) -> list[Prepared]:
        """Gives it the lane, has state brought that it needs from disk, or ends it."""
        start = Resuming(self.cache).match(sequence)
        adopt = Entrance(self.cache, self.limits).adopt
        if self.cache.standing(line_of(sequence), sequence.prompt_tokens) is not None:
            adopt(sequence, start.match, sequence.prompt_tokens)
            self.saving.forget_parked(sequence)
            return [self._end(sequence, PrepareOutcome.DONE, now)]
        if start.source is not None and start.source.tier is Tier.DISK:
            self._bring(sequence, start.source.key, now)
            return []
        adopt(sequence, start.match, start.position)
        lane = self._open(sequence, start, now)
        if lane is None:
            message = "there is no memory for it that others could spare"
            return [self._end(sequence, PrepareOutcome.NO_ROOM, now, message)]
        sequence.enter(lane, start.position)
        self.current, self._kept_at = sequence, start.position
        self.saving.forget_parked(sequence)
        return []

    def _bring(self, sequence: Sequence, key: int, now: float) -> None:
        """Waits for state from disk, or does without if there's no room for it."""
        self._blocked = self.cache.is_reading or self.cache.restore(key, now, hinted=True)
        if not self._blocked:
            sequence.refused.add(key)

    def _open(self, sequence: Sequence, start: Start, now: float) -> int | None:
        images = sum(position > start.position for position, _ in sequence.wanted)
        tokens = sequence.prompt_tokens
        return self.cache.open_ahead(start.source, tokens, images, sequence.continuation, now)

    def _leave(self, now: float, keep: bool = True) -> None:
        """Nobody has the lane afterwards."""
        sequence, self.current = self.current, None
        if sequence is None:
            return
        assert sequence.lane is not None
        if keep and sequence.computed - self._kept_at >= self.least:
            name = self.saving.keep_progress(sequence, now, lossless=True)
            if name is not None:
                del sequence.checkpoints[name]
                sequence.parked = name
        self.cache.close(sequence.lane)
        sequence.leave()

    def _end(
        self,
        sequence: Sequence,
        outcome: PrepareOutcome,
        now: float,
        message: str = "",
        keep: bool = True,
    ) -> Prepared:
        if sequence is self.current:
            self._leave(now, keep)
        del self.waiting[sequence.continuation]
        event = self._ended(sequence, outcome, message)
        self.forget([sequence.continuation])
        return event

    def _ended(self, sequence: Sequence, outcome: PrepareOutcome, message: str) -> Prepared:
        self.outcomes[outcome] += 1
        return Prepared(
            request_id=sequence.request_id,
            outcome=outcome,
            prompt_tokens=sequence.prompt_tokens,
            computed_tokens=sequence.spent,
            checkpoints=self.cache.infos(sequence.continuation, sequence.left),
            message=message,
        )
