"""Queues: who waits, who runs, who makes way. Applies the planner's answers to the cache; no tensors, no text, no clock.

submit ─▶ waiting ─admit▶ running (a lane each) ─▶ ended          who needs state from disk waits for it,
             ▲                │                                   and holds up nobody
             └────preempt─────┘   its progress is kept as a checkpoint, its output is not repeated
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from engine.api import (
    AnchorKind,
    CheckpointId,
    CheckpointInfo,
    ContinuationId,
    RejectCode,
    RequestId,
    ResumeReason,
    Retention,
    Tier,
)
from engine.cache.store import Cache
from engine.planner.admission import (
    Admission,
    Limits,
    Refusal,
    Wait,
    admit,
    check_queue,
    check_size,
)
from engine.planner.memory import ceil_div
from engine.planner.step import Budget, Chunk, Lineup, plan_step, service_key
from engine.resuming import Resuming, line_of
from engine.sequence import Sequence, Work


@dataclass(frozen=True, slots=True)
class Entry:
    """A sequence that got a lane. `source` as it was before anything moved."""

    sequence: Sequence
    reused: int
    matched: int
    reason: ResumeReason
    source: CheckpointInfo | None


@dataclass(frozen=True, slots=True)
class Stuck:
    """A sequence that memory alone can't carry on: nothing else runs and the rest is pinned."""

    sequence: Sequence
    refusal: Refusal


@dataclass(slots=True)
class Counters:
    """Since start. Tokens, except where the name says otherwise."""

    prefilled_tokens: int = 0
    reused_tokens: int = 0
    generated_tokens: int = 0
    recomputed_tokens: int = 0
    steps: int = 0
    preemptions: int = 0
    checkpoints_saved: int = 0
    checkpoints_skipped: int = 0


@dataclass(slots=True)
class Scheduler:
    """Owns the queues and, through the cache, all memory. `now` is Unix seconds wherever it is asked for. `tipless` are sequences
    that had to make way when only their tip was left to compute: they are ended.
    """

    cache: Cache
    limits: Limits
    budget: Budget
    waiting: list[Sequence] = field(default_factory=list)
    running: dict[int, Sequence] = field(default_factory=dict)
    counters: Counters = field(default_factory=Counters)
    departures: int = 0
    tipless: list[Sequence] = field(default_factory=list)

    @property
    def resuming(self) -> Resuming:
        return Resuming(self.cache)

    def submit(
        self, sequence: Sequence, retention: Retention, max_tokens: int | None
    ) -> Refusal | None:
        """Queues it, or says why it can't ever run or not now."""
        refusal = check_size(sequence.prompt_tokens, max_tokens, self.limits)
        refusal = refusal or check_queue(len(self.waiting) - self.cache.lanes.free, self.limits)
        if refusal is not None:
            return refusal
        self.cache.reclaim.retentions[retention.continuation] = retention
        self.resuming.aim(sequence)
        self.waiting.append(sequence)
        return None

    def admit(self, now: float) -> Iterable[Entry | Stuck]:
        """Gives lanes to those next in line while there is memory for their whole prompts."""
        self._fetch(now)
        while self.waiting and self.cache.lanes.free:
            queue = [each for each in self.waiting if self._may_enter(each)]
            if not queue:
                return
            sequence = min(queue, key=_service)
            outcome = self._admit_one(sequence, now)
            if isinstance(outcome, Wait):
                return
            if outcome is None:
                continue
            self.waiting.remove(sequence)
            for other in self.waiting:
                if other.arrival < sequence.arrival:
                    other.overtaken += sequence.estimate
            yield outcome

    def plan(self, now: float) -> tuple[list[Work], list[Stuck]]:
        """The next step with memory for all of it. Sequences that must make way for others are preempted; one that is alone and
        still can't have its pages is stuck.
        """
        while self.running:
            work = self._plan_once(now)
            if work:
                self.counters.steps += 1
                return work, []
            if len(self.running) == 1:
                (sequence,) = self.running.values()
                return [], [Stuck(sequence, self._pinned(len(sequence.tokens)))]
            self._preempt(self._least(), now)
        return [], []

    def settle(self, work: Iterable[Work], now: float) -> None:
        """Notes that the work is computed and takes the checkpoints that are due."""
        for item in work:
            sequence = item.sequence
            self._count(sequence, item.tokens)
            sequence.advance(item.tokens)
            kind = sequence.due()
            if kind is not None:
                self._save(sequence, kind, now)

    def keep_progress(self, sequence: Sequence, now: float) -> None:
        """A checkpoint of the part of the prompt that is computed, for whoever asks again."""
        if sequence.lane is None or not 0 < sequence.computed <= sequence.prompt_tokens:
            return
        if self.cache.standing(line_of(sequence), sequence.computed) is None:
            self._save(sequence, AnchorKind.LADDER, now)

    def remove(self, sequence: Sequence) -> None:
        """Ends it, wherever it is: lane and pages are free afterwards."""
        if sequence.lane is None:
            self.waiting.remove(sequence)
        else:
            self._leave(sequence)
        self.forget_unused()

    def find(self, request: RequestId) -> Sequence | None:
        for sequence in (*self.running.values(), *self.waiting):
            if sequence.request_id == request:
                return sequence
        return None

    def retain(self, entries: Iterable[Retention]) -> None:
        """Takes what continuations are worth; of those nothing is held or asked of, nothing is kept."""
        for entry in entries:
            self.cache.reclaim.retentions[entry.continuation] = entry
        self.forget_unused()

    def drop(
        self, continuation: ContinuationId, names: tuple[CheckpointId, ...] | None
    ) -> tuple[CheckpointInfo, ...]:
        dropped = self.cache.drop(continuation, names)
        self.forget_unused()
        return dropped

    def forget_unused(self) -> None:
        retentions = self.cache.reclaim.retentions
        used = {each.continuation for each in (*self.running.values(), *self.waiting)}
        for continuation in set(retentions) - used - set(self.cache.checkpoints.of):
            del retentions[continuation]

    def counted(self) -> dict[str, int]:
        moves = self.cache.reclaim.moves
        return {
            **asdict(self.counters),
            "checkpoints_demoted": moves.demoted,
            "checkpoints_left_to_disk": moves.left_to_disk,
            "checkpoints_dropped": moves.dropped,
            **({} if self.cache.disk is None else self.cache.disk.counted()),
        }

    def feed(self, now: float) -> None:
        """Lets the disk go on; what runs or waits is written last, since it may soon be superseded."""
        every = (*self.running.values(), *self.waiting)
        self.cache.feed(now, {each.continuation for each in every})

    @property
    def restoring(self) -> int:
        """How many of the waiting need state that is still on disk."""
        return sum(not self.resuming.is_ready(each) for each in self.waiting)

    @property
    def is_asleep(self) -> bool:
        """Whether nothing can go on before the disk has done its part."""
        blocked = bool(self.waiting) and self.restoring == len(self.waiting)
        return blocked and not self.running and self.cache.is_restoring

    def infos(self, sequence: Sequence) -> tuple[CheckpointInfo, ...]:
        """The checkpoints it made or touched that still exist, by position."""
        found = (self.cache.info(sequence.continuation, name) for name in sequence.checkpoints)
        return tuple(sorted((each for each in found if each), key=lambda each: each.position))

    def _fetch(self, now: float) -> None:
        """Has state that waiting sequences need brought from disk, in their order of service."""
        awaited = (each.awaits for each in self.waiting)
        self.cache.reclaim.awaited = frozenset(key for key in awaited if key is not None)
        for sequence in sorted(self.waiting, key=_service):
            if not self._may_try(sequence) or self.resuming.fetch(sequence, now):
                continue
            if self.running:
                sequence.departures = self.departures
            else:
                self.resuming.do_without(sequence)

    def _may_enter(self, sequence: Sequence) -> bool:
        return self._may_try(sequence) and self.resuming.is_ready(sequence)

    def _may_try(self, sequence: Sequence) -> bool:
        """What was preempted or had no room comes back when somebody has left, so that two don't push each other out in turns."""
        departed = sequence.departures is None or sequence.departures != self.departures
        return departed or not self.running

    def _admit_one(self, sequence: Sequence, now: float) -> Entry | Stuck | Wait | None:
        """None: its state went to disk meanwhile, and it waits for that again."""
        start = self.resuming.match(sequence)
        source = start.source
        if source is not None and source.tier is Tier.DISK:
            self.resuming.wait_for(sequence, source)
            return None
        tokens = len(sequence.tokens) + 1
        growth = sum(self._growth(each) for each in self.running.values())
        proposal = Admission(source, source.position if source else 0, start.reason)
        verdict = admit(
            self.cache.cells_needed(source, tokens), self.cache.pools(source, growth, now), proposal
        )
        if isinstance(verdict, Wait):
            alone = not self.running and verdict.short > 0
            return Stuck(sequence, self._pinned(tokens)) if alone else verdict
        return self._enter(sequence, verdict, start.matched, now)

    def _enter(
        self, sequence: Sequence, admission: Admission, matched: int, now: float
    ) -> Entry | Wait:
        source = admission.source
        info = None if source is None else self.resuming.describe(source, sequence)
        self._adopt(sequence, admission)
        lane = self.cache.open(source, now)
        if lane is None and self.running:
            return Wait(1)
        if lane is None:
            lane, info = self.cache.open(None, now), None
            admission = Admission(None, 0, ResumeReason.STATE_REJECTED)
        assert lane is not None
        sequence.enter(lane, admission.resume_at)
        sequence.awaits = None
        self.running[lane] = sequence
        self._forget_parked(sequence)
        self.counters.reused_tokens += admission.resume_at
        return Entry(sequence, admission.resume_at, matched, admission.reason, info)

    def _adopt(self, sequence: Sequence, admission: Admission) -> None:
        """Wanted checkpoints up to the resume point that exist already become this continuation's too."""
        kinds = dict(sequence.wanted)
        for candidate in self.cache.look_up(line_of(sequence)).candidates:
            kind = kinds.get(candidate.position)
            if kind is not None and candidate.position <= admission.resume_at:
                name = self.cache.adopt(candidate, sequence.continuation, kind)
                sequence.checkpoints[name] = None

    def _growth(self, sequence: Sequence) -> int:
        """Cells that its known tokens still need, and one page more, so that a newcomer isn't pushed out again at once."""
        assert sequence.lane is not None
        pages = ceil_div(len(sequence.tokens) + 1, self.limits.page_tokens) + 1
        most = ceil_div(self.limits.context_tokens, self.limits.page_tokens)
        return max(0, min(pages, most) - len(self.cache.lanes.pages[sequence.lane]))

    def _plan_once(self, now: float) -> list[Work]:
        plan = plan_step([_lineup(each) for each in self.running.values()], self.budget)
        urgent = sorted(plan.urgent, key=lambda chunk: self._standing(chunk.lane), reverse=True)
        work = [each for chunk in urgent if (each := self._reserve_urgent(chunk, now))]
        work += [each for chunk in plan.prompts if (each := self._reserve(chunk, now))]
        for lane, tokens in plan.overtaken:
            if lane in self.running:
                self.running[lane].overtaken += tokens
        return [item for item in work if item.sequence.lane is not None]

    def _reserve_urgent(self, chunk: Chunk, now: float) -> Work | None:
        """Memory for a decode, at the cost of whoever is worth least; None if that's the sequence itself."""
        while chunk.lane in self.running:
            work = self._reserve(chunk, now)
            if work is not None or len(self.running) == 1:
                return work
            self._preempt(self._least(), now)
        return None

    def _reserve(self, chunk: Chunk, now: float) -> Work | None:
        sequence = self.running.get(chunk.lane)
        if sequence is None:
            return None
        end = sequence.computed + chunk.tokens
        if not self.cache.reserve(chunk.lane, end, now):
            return None
        return Work(sequence, chunk.tokens, end == len(sequence.tokens) and not sequence.closing)

    def _standing(self, lane: int) -> tuple[int, int]:
        sequence = self.running[lane]
        priority = self.cache.reclaim.retentions[sequence.continuation].priority
        return (priority, -sequence.arrival)

    def _least(self) -> Sequence:
        """The running sequence that makes way first: lowest priority, then the latest to arrive."""
        return self.running[min(self.running, key=self._standing)]

    def _preempt(self, sequence: Sequence, now: float) -> None:
        if sequence.closing:
            self.tipless.append(sequence)
            self._leave(sequence)
            return
        assert sequence.lane is not None
        if sequence.computed > 0:
            sequence.parked = self.cache.park(
                sequence.lane, line_of(sequence), sequence.computed, sequence.continuation, now
            )
        self.counters.preemptions += 1
        sequence.estimate = sequence.remaining if sequence.parked else len(sequence.tokens)
        self._leave(sequence)
        sequence.departures = self.departures
        self.waiting.append(sequence)

    def _leave(self, sequence: Sequence) -> None:
        assert sequence.lane is not None
        del self.running[sequence.lane]
        self.cache.close(sequence.lane)
        sequence.leave()
        self.departures += 1

    def _forget_parked(self, sequence: Sequence) -> None:
        if sequence.parked is not None:
            self.cache.supersede(sequence.continuation, sequence.parked)
            sequence.parked = None

    def _save(self, sequence: Sequence, kind: AnchorKind, now: float) -> None:
        assert sequence.lane is not None
        name = self.cache.save(
            sequence.lane, line_of(sequence), sequence.computed, sequence.continuation, kind, now
        )
        if name is None:
            self.counters.checkpoints_skipped += 1
        else:
            self.counters.checkpoints_saved += 1
            sequence.checkpoints[name] = None

    def _count(self, sequence: Sequence, tokens: int) -> None:
        if sequence.urgent:
            self.counters.generated_tokens += tokens
        else:
            self.counters.prefilled_tokens += tokens
            again = min(sequence.reached - sequence.computed, tokens)
            self.counters.recomputed_tokens += max(again, 0)

    def _pinned(self, tokens: int) -> Refusal:
        cells = self.cache.pages.device.cells * self.limits.page_tokens
        message = f"{tokens} tokens need memory that pinned continuations hold"
        return Refusal(RejectCode.MEMORY_PINNED, message, tokens, cells)


def _service(sequence: Sequence) -> tuple[int, int]:
    return service_key(sequence.estimate, sequence.overtaken, sequence.arrival)


def _lineup(sequence: Sequence) -> Lineup:
    assert sequence.lane is not None
    return Lineup(
        lane=sequence.lane,
        arrival=sequence.arrival,
        remaining=sequence.remaining,
        until_stop=sequence.until_stop,
        urgent=sequence.urgent,
        overtaken=sequence.overtaken,
    )
