"""Queues: who waits, who runs, who makes way. Applies the planner's answers to the cache; no tensors, no text, no clock.

submit ─▶ waiting ─admit▶ running (a lane each) ─▶ ended          who needs state from disk waits for it,
             ▲                │                                   and holds up nobody
             └────preempt─────┘   its progress is kept as a checkpoint, its output is not repeated
"""

import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from engine.api import (
    CheckpointId,
    CheckpointInfo,
    ContinuationId,
    Dropped,
    RequestId,
    Retention,
    Tier,
)
from engine.cache.store import Cache
from engine.entrance import Entrance, Entry
from engine.following import Following
from engine.outcomes import Broken, Counters, Stuck
from engine.planner.admission import Limits, Refusal, Wait, check_queue, check_size
from engine.planner.order import Waiter, next_in_line, service_key
from engine.planner.sharing import Sharing
from engine.planner.step import Budget, Chunk, Lineup, plan_step
from engine.preparing import Preparing
from engine.resuming import Resuming
from engine.saving import Saving
from engine.sequence import Sequence, Work

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Scheduler:
    """Owns the queues and, through the cache, all memory. `now` is Unix seconds wherever it is asked for. `tipless` are sequences
    that had to make way when only their tip was left to compute, `broken` those whose memory failed: the loop ends them.
    """

    cache: Cache
    limits: Limits
    budget: Budget
    sharing: Sharing = Sharing()
    waiting: list[Sequence] = field(default_factory=list)
    running: dict[int, Sequence] = field(default_factory=dict)
    counters: Counters = field(default_factory=Counters)
    departures: int = 0
    tipless: list[Sequence] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)
    entrance: Entrance = field(init=False)
    following: Following = field(init=False)
    saving: Saving = field(init=False)
    preparing: Preparing = field(init=False)

    def __post_init__(self) -> None:
        self.entrance = Entrance(self.cache, self.limits)
        self.following = Following(self.sharing)
        self.saving = Saving(self.cache, self.counters)
        self.preparing = Preparing(
            cache=self.cache,
            saving=self.saving,
            limits=self.limits,
            chunk=self.budget.mixed,
            least=self.sharing.least,
            forget=self.forget_unused,
        )

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
        self.resuming.aim(sequence)
        self.cache.reclaim.retentions[retention.continuation] = retention
        self.waiting.append(sequence)
        return None

    def admit(self, now: float) -> Iterable[Entry | Stuck | Broken]:
        """Gives lanes to those next in line while there is memory for their whole prompts. One that waits for another's prefix keeps its
        place: a lane and its memory are left to it by those behind it, as if it ran.
        """
        self._fetch(now)
        held: list[Sequence] = []
        while self.cache.lanes.free > len(held):
            sequence = self._next_but(held)
            if sequence is None:
                return
            try:
                outcome = self._admit_one(sequence, held, now)
            except Exception as error:
                outcome = Broken(sequence, error)
            if isinstance(outcome, Wait):
                return
            if outcome is None:
                held += [sequence] if self.following.follows(sequence) else []
                continue
            self.waiting.remove(sequence)
            self.following.forget(sequence)
            for other in self.waiting:
                if other.arrival < sequence.arrival:
                    other.overtaken += sequence.estimate
            yield outcome

    def plan(self, now: float) -> tuple[list[Work], list[Stuck]]:
        """The next step with memory for all of it. Sequences that must make way for others are preempted; one that is alone and
        still can't have its pages is stuck.
        """
        while self.running:
            departures = self.departures
            work = self._plan_once(now)
            if work:
                self.counters.steps += 1
                return work, []
            if self.departures != departures:
                continue
            if len(self.running) == 1:
                (sequence,) = self.running.values()
                return [], [Stuck(sequence, self.entrance.pinned(len(sequence.tokens)))]
            self._make_way(now)
        return [], []

    def reserve(self, chunk: Chunk, now: float) -> Work | None:
        """Memory for the chunk, and the work that it is then; None where it can't be had."""
        sequence = self.running.get(chunk.lane)
        if sequence is None:
            return None
        end = sequence.computed + chunk.tokens
        try:
            reserved = self.cache.reserve(chunk.lane, end, now)
        except Exception as error:
            self._break(sequence, error)
            return None
        if not reserved:
            return None
        return Work(sequence, chunk.tokens, end == len(sequence.tokens) and not sequence.closing)

    def settle(self, item: Work, now: float) -> None:
        """Notes that the work is computed and takes the checkpoint that is due."""
        sequence = item.sequence
        self._count(sequence, item.tokens)
        sequence.advance(item.tokens)
        kind = sequence.due()
        if kind is not None:
            self.saving.save(sequence, kind, now)

    def remove(self, sequence: Sequence) -> None:
        """Ends it, wherever it is: lane and pages are free afterwards."""
        if sequence.lane is None:
            self.waiting.remove(sequence)
            self.following.forget(sequence)
        else:
            self._leave(sequence)
        self.forget_unused([sequence.continuation])

    def find(self, request: RequestId) -> Sequence | None:
        for sequence in (*self.running.values(), *self.waiting):
            if sequence.request_id == request:
                return sequence
        return None

    def retain(self, entries: Iterable[Retention]) -> None:
        """Takes what continuations are worth; of those nothing is held or asked of, nothing is kept."""
        told = tuple(entries)
        for entry in told:
            self.cache.reclaim.retentions[entry.continuation] = entry
        self.forget_unused(entry.continuation for entry in told)

    def drop(
        self, continuation: ContinuationId, names: tuple[CheckpointId, ...] | None
    ) -> tuple[CheckpointInfo, ...]:
        dropped = self.cache.drop(continuation, names)
        self.forget_unused([continuation])
        return dropped

    def take_dropped(self) -> list[Dropped]:
        """What ceased to exist since the last call, and why."""
        dropped = self.cache.reclaim.take_dropped()
        self.forget_unused(info.continuation for each in dropped for info in each.checkpoints)
        return dropped

    def forget_unused(self, continuations: Iterable[ContinuationId]) -> None:
        """Forgets what those of them are worth of which nothing is held and that nobody asks of."""
        unheld = set(continuations).difference(self.cache.checkpoints.of)
        if unheld:
            unheld.difference_update(
                e.continuation for e in (*self.running.values(), *self.waiting)
            )
            unheld.difference_update(self.preparing.continuations)
        for continuation in unheld:
            self.cache.reclaim.retentions.pop(continuation, None)

    def counted(self) -> dict[str, int]:
        moves = self.cache.reclaim.moves
        return {
            **asdict(self.counters),
            **self.preparing.counted(),
            **asdict(self.cache.prefetch.counters),
            "checkpoints_demoted": moves.demoted,
            "checkpoints_not_demoted": moves.not_demoted,
            "checkpoints_left_to_disk": moves.left_to_disk,
            "checkpoints_dropped": moves.dropped,
            "host_bytes_unpinned": self.cache.pages.host.unpinned_bytes,
            **({} if self.cache.disk is None else self.cache.disk.counted()),
        }

    def feed(self, now: float) -> None:
        """Lets the disk go on; what runs or waits is written last, since it may soon be superseded. Hints that can't be followed are
        forgotten.
        """
        every = (*self.running.values(), *self.waiting)
        busy = {each.continuation for each in every} | self.preparing.continuations
        self.cache.feed(now, busy)
        try:
            self.cache.prefetch.feed(now)
        except Exception:
            log.exception("state that was hinted at could not be brought from disk")
            self.cache.prefetch.forget()
            self.saving.is_doubtful = True

    @property
    def has_idle_work(self) -> bool:
        """Whether something can be done at once while nothing is asked for."""
        return self.preparing.has_work or self.cache.prefetch.has_work

    @property
    def lanes_in_use(self) -> tuple[int, ...]:
        return (*self.running, *self.preparing.lanes)

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
        return self.cache.infos(sequence.continuation, sequence.left)

    def _fetch(self, now: float) -> None:
        """Has state that waiting sequences need brought from disk, in their order of service."""
        awaited = (each.awaits for each in self.waiting)
        self.cache.reclaim.awaited = frozenset(key for key in awaited if key is not None)
        for sequence in sorted(self.waiting, key=_service):
            try:
                if self._may_try(sequence) and not self.resuming.fetch(sequence, now):
                    self._miss(sequence)
            except Exception as error:
                self.waiting.remove(sequence)
                self.broken.append(Broken(sequence, error))

    def _miss(self, sequence: Sequence) -> None:
        """There's no room now for the state it needs."""
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

    def _next_but(self, held: list[Sequence]) -> Sequence | None:
        queue = [each for each in self.waiting if each not in held and self._may_enter(each)]
        place = next_in_line([Waiter(e.estimate, e.overtaken, e.arrival) for e in queue])
        return None if place is None else queue[place]

    def _admit_one(
        self, sequence: Sequence, held: list[Sequence], now: float
    ) -> Entry | Stuck | Broken | Wait | None:
        """None if it waits for another's prefix, or again for its state, which went to disk meanwhile."""
        if self.following.waits(sequence):
            return None
        start = self.resuming.match(sequence)
        if self.following.follow(sequence, start.position, self.running.values()):
            self.counters.followed += 1
            return None
        sequence.estimate = len(sequence.tokens) - start.position
        if start.source is not None and start.source.tier is Tier.DISK:
            self.resuming.wait_for(sequence, start.source)
            return None
        page = self.limits.page_tokens
        promised = sum(map(self.entrance.growth, self.running.values()))
        promised += sum(self.following.missing_pages(each, page) for each in held)
        entry = self.entrance.enter(sequence, start, promised, not self.running, now)
        if isinstance(entry, Refusal):
            return Stuck(sequence, entry)
        if isinstance(entry, Entry):
            assert sequence.lane is not None
            self.running[sequence.lane] = sequence
            self.saving.forget_parked(sequence)
            self.counters.reused_tokens += entry.reused
        return entry

    def _plan_once(self, now: float) -> list[Work]:
        urgency = self.following.urgency()
        lineups = [_lineup(each, urgency.get(each)) for each in self.running.values()]
        plan = plan_step(lineups, self.budget)
        urgent = sorted(plan.urgent, key=lambda chunk: self._standing(chunk.lane), reverse=True)
        work = [each for chunk in urgent if (each := self._reserve_urgent(chunk, now))]
        work += [each for chunk in plan.prompts if (each := self.reserve(chunk, now))]
        for lane, tokens in plan.overtaken:
            if lane in self.running:
                self.running[lane].overtaken += tokens
        return [item for item in work if item.sequence.lane is not None]

    def _reserve_urgent(self, chunk: Chunk, now: float) -> Work | None:
        """Memory for a decode, at the cost of whoever is worth least; None if that's the sequence itself."""
        while chunk.lane in self.running:
            work = self.reserve(chunk, now)
            if work is not None or len(self.running) == 1:
                return work
            self._make_way(now)
        return None

    def _standing(self, lane: int) -> tuple[int, int]:
        sequence = self.running[lane]
        priority = self.cache.reclaim.retentions[sequence.continuation].priority
        return (priority, -sequence.arrival)

    def _least(self) -> Sequence:
        """The running sequence that makes way first: lowest priority, then the latest to arrive."""
        return self.running[min(self.running, key=self._standing)]

    def _make_way(self, now: float) -> None:
        sequence = self._least()
        try:
            self._preempt(sequence, now)
        except Exception as error:
            self._break(sequence, error)

    def _break(self, sequence: Sequence, error: Exception) -> None:
        self.broken.append(Broken(sequence, error))
        self._leave(sequence)

    def _preempt(self, sequence: Sequence, now: float) -> None:
        if sequence.closing:
            self.tipless.append(sequence)
            self._leave(sequence)
            return
        self.saving.park(sequence, now)
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

    def _count(self, sequence: Sequence, tokens: int) -> None:
        if sequence.urgent:
            self.counters.generated_tokens += tokens
        else:
            self.counters.prefilled_tokens += tokens
            again = min(sequence.reached - sequence.computed, tokens)
            self.counters.recomputed_tokens += max(again, 0)


def _service(sequence: Sequence) -> tuple[int, int]:
    return service_key(sequence.estimate, sequence.overtaken, sequence.arrival)


def _lineup(sequence: Sequence, urgency: int | None) -> Lineup:
    assert sequence.lane is not None
    left = sequence.remaining
    return Lineup(
        lane=sequence.lane,
        arrival=sequence.arrival,
        remaining=left if urgency is None else min(left, urgency),
        until_stop=sequence.until_stop,
        urgent=sequence.urgent,
        overtaken=sequence.overtaken,
        computed=sequence.computed,
    )
