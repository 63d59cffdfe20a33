"""The engine's thread: drain the inbox, plan, step, publish. Knows the order of these; the decisions are others'.

What goes wrong with one sequence ends that one (`_contained`), and the accounts of memory are proved afterwards. A forward pass that
fails, or accounts that don't hold, end the process: `fault` says why, and `run` raises it once all events are out.
"""

import logging
from array import array
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial

from engine.ahead import Ahead
from engine.api import (
    Cancel,
    Drop,
    Dropped,
    Event,
    Failed,
    FinishReason,
    Generate,
    Prefetch,
    PrepareOutcome,
    RejectCode,
    RequestId,
    SetRetention,
    Shutdown,
    TakeSnapshot,
)
from engine.cache.integrity import check, check_memory
from engine.errors import EngineError, ModelFault, StateFault
from engine.inbox import Inbox, Post, Told, Wake, drain
from engine.outcomes import Broken, Stuck
from engine.planner.admission import Refusal, output_limit
from engine.runner import Runner
from engine.sampling import NO_TOKEN
from engine.scheduler import Scheduler
from engine.sequence import Sequence, Work, wanted_positions
from engine.snapshots import take_snapshot
from engine.turns import Prompted, PromptedAhead, Turn, prepared_sequence, refused, runs_already

log = logging.getLogger(__name__)

ASLEEP_S = 5.0
"""How long nothing is looked after while all wait for the disk."""
FLUSH_S = 2.0
"""How long an orderly end waits for state to be written to disk."""


@dataclass(slots=True)
class Loop:
    """`publish` takes the events of a step in order. `clock` gives Unix seconds, `seeds` a fresh seed for those who name none. `watch`
    is entered for as long as something is being done. All state is touched from one thread only.
    """

    scheduler: Scheduler
    runner: Runner
    stop_token_ids: frozenset[int]
    publish: Callable[[list[Event]], None]
    clock: Callable[[], float]
    seeds: Callable[[], int]
    check_integrity: bool = False
    watch: AbstractContextManager[None] = field(default_factory=nullcontext)
    turns: dict[RequestId, Turn] = field(default_factory=dict)
    arrivals: int = 0
    fault: EngineError | None = None
    ahead: Ahead = field(init=False)

    def __post_init__(self) -> None:
        self.ahead = Ahead(self.scheduler, self.runner)

    def run(self, inbox: Inbox) -> None:
        """Until Shutdown. Sleeps while there's nothing to do. Raises ModelFault or StateFault when the process can't go on."""
        while True:
            for post in drain(inbox, self._patience()):
                with self.watch:
                    events = self.handle(post)
                self._tell(events)
                if isinstance(post, Shutdown):
                    self.scheduler.cache.shut_down(self.clock, FLUSH_S)
                    return
            with self.watch:
                events = self.step()
            self._tell(events)

    def _tell(self, events: list[Event]) -> None:
        self.publish(events)
        if self.fault is not None:
            raise self.fault

    def _patience(self) -> float | None:
        """How long to sleep: a disk that all wait for is looked after now and then."""
        if self.scheduler.is_asleep:
            return ASLEEP_S
        if self.turns or self.scheduler.has_idle_work:
            return 0
        return ASLEEP_S if self.scheduler.cache.is_reading else None

    def handle(self, post: Post) -> list[Event]:
        """What it leads to, behind the step that was begun."""
        return [] if isinstance(post, Wake) else [*self._land(), *self._act_on(post)]

    def _act_on(self, post: Told) -> list[Event]:
        match post:
            case Prompted():
                return self._submit(post)
            case PromptedAhead():
                return self._prepare(post)
            case Cancel():
                return self._cancel(post.request_id)
            case SetRetention():
                self.scheduler.retain(post.entries)
                return []
            case Prefetch():
                self.scheduler.cache.prefetch.hint(post.continuations)
                return []
            case Drop():
                return self._drop(post)
            case TakeSnapshot():
                return [take_snapshot(self.scheduler, post.request_id)]
            case Shutdown():
                return self._shut_down()

    def step(self) -> list[Event]:
        """One forward pass at most, and all that it led to."""
        now = self.clock()
        self.scheduler.cache.collect(now)
        work, events = self.ahead.take(), list[Event]()
        if not work:
            events += self._admit(now)
            work, stuck = self.scheduler.plan(now)
            for each in stuck:
                events += self._give_up(each)
        events += self._end_tipless()
        events += self._end_broken()
        if work:
            events += self._carry_out(work, now)
        elif not self.turns:
            events += self._rest(now)
        self.scheduler.feed(now)
        events += self.scheduler.take_dropped()
        if self.scheduler.saving.is_doubtful:
            self._prove()
        if self.check_integrity:
            check(self.scheduler.cache, self.scheduler.lanes_in_use)
        return events

    def _submit(self, prompted: Prompted) -> list[Event]:
        request, preparing = prompted.generate.request_id, self.scheduler.preparing
        if request in self.turns or preparing.find(request):
            return [refused(prompted.generate, runs_already(request))]
        ended = preparing.make_way(prompted.generate.continuation, self.clock())
        return [*ended, *self._contained(request, lambda: self._take_in(prompted))]

    def _prepare(self, prompted: PromptedAhead) -> list[Event]:
        prepare, preparing = prompted.prepare, self.scheduler.preparing
        if prepare.request_id in self.turns or preparing.find(prepare.request_id):
            return [refused(prepare, runs_already(prepare.request_id))]
        self.arrivals += 1
        sequence = prepared_sequence(prompted, self.arrivals)
        return [*preparing.take(sequence, prepare.retention, self.clock())]

    def _drop(self, drop: Drop) -> list[Event]:
        """What is prepared for a continuation that is forgotten as a whole ends with it."""
        events: list[Event] = []
        if drop.checkpoints is None:
            preparing, outcome = self.scheduler.preparing, PrepareOutcome.CANCELLED
            events += preparing.end_of(drop.continuation, outcome, self.clock(), keep=False)
        infos = self.scheduler.drop(drop.continuation, drop.checkpoints)
        return [*events, *([Dropped(infos, drop.reason)] if infos else [])]

    def _take_in(self, prompted: Prompted) -> list[Event]:
        generate, scheduler = prompted.generate, self.scheduler
        self.arrivals += 1
        count, seed = len(prompted.token_ids), generate.sampling.seed
        sequence = Sequence(
            request_id=generate.request_id,
            tenant=generate.tenant,
            continuation=generate.continuation,
            sampling=generate.sampling,
            arrival=self.arrivals,
            tokens=array("I", prompted.token_ids),
            prompt_tokens=count,
            output_limit=output_limit(count, generate.max_tokens, scheduler.limits.context_tokens),
            wanted=wanted_positions(
                generate.anchors, generate.ladder_tokens, prompted.borders, count
            ),
            seed=self.seeds() if seed is None else seed,
            banned=prompted.banned,
        )
        refusal = scheduler.submit(sequence, generate.retention, generate.max_tokens)
        if refusal is not None:
            return [refuse(generate, refusal)]
        self.turns[generate.request_id] = Turn(prompted, sequence, self.stop_token_ids)
        return []

    def _cancel(self, request: RequestId) -> list[Event]:
        """Ends it at once; a turn that only waits for its tip is left to finish."""
        turn = self.turns.get(request)
        if turn is None:
            return [*self.scheduler.preparing.cancel(request, self.clock())]
        if turn.sequence.closing:
            return []
        return self._contained(request, lambda: self._call_off(turn))

    def _call_off(self, turn: Turn) -> list[Event]:
        self.scheduler.saving.keep_progress(turn.sequence, self.clock())
        return [*turn.end(FinishReason.CANCELLED), *self._finish(turn)]

    def _shut_down(self) -> list[Event]:
        """Tells everyone in flight."""
        message = "the engine is shutting down"
        refusal = Refusal(RejectCode.SHUTTING_DOWN, message)
        told = [
            turn.failed(message)
            if turn.sequence.started
            else refused(turn.prompted.generate, refusal)
            for turn in self.turns.values()
        ]
        return [*told, *self.scheduler.preparing.end_all(message, self.clock())]

    def _admit(self, now: float) -> list[Event]:
        events: list[Event] = []
        for outcome in self.scheduler.admit(now):
            if isinstance(outcome, Stuck):
                events += self._give_up(outcome)
            elif isinstance(outcome, Broken):
                events += self._broken(outcome)
            else:
                request = outcome.sequence.request_id
                events += self._contained(request, partial(self.turns[request].start, outcome))
        return events

    def _give_up(self, stuck: Stuck) -> list[Event]:
        return self._contained(stuck.sequence.request_id, lambda: self._cut_off(stuck))

    def _cut_off(self, stuck: Stuck) -> list[Event]:
        """What memory can't carry on ends as well as it can: refused, cut off, or failed in its prompt."""
        sequence = stuck.sequence
        turn = self.turns[sequence.request_id]
        if not sequence.started:
            del self.turns[sequence.request_id]
            self.scheduler.forget_unused([sequence.continuation])
            return [refuse(turn.prompted.generate, stuck.refusal)]
        if turn.generated:
            deltas = [] if sequence.closing else turn.end(FinishReason.LENGTH)
            return [*deltas, *self._finish(turn)]
        return self._fail(turn, stuck.refusal.message)

    def _end_tipless(self) -> list[Event]:
        events: list[Event] = []
        while self.scheduler.tipless:
            turn = self.turns[self.scheduler.tipless.pop().request_id]
            events += self._contained(turn.sequence.request_id, partial(self._finish, turn))
        return events

    def _end_broken(self) -> list[Event]:
        events: list[Event] = []
        while self.scheduler.broken:
            events += self._broken(self.scheduler.broken.pop())
        return events

    def _land(self) -> list[Event]:
        """Finishes the step that was begun, and begins none."""
        work = self.ahead.take()
        return self._carry_out(work, self.clock(), goes_on=False) if work else []

    def _carry_out(self, work: list[Work], now: float, goes_on: bool = True) -> list[Event]:
        """`goes_on`: the next step may be begun before this one's outcome is told."""
        try:
            sampled = self.runner.run(work)
        except ModelFault as fault:
            return self._fail_all(work, fault)
        events: list[Event] = []
        for item, token in zip(work, sampled, strict=True):
            events += self._of(item, partial(self._accept, item, token, now))
        if goes_on and all(self._goes_on(item) for item in work):
            self.ahead.begin(work, now)
        for item, token in zip(work, sampled, strict=True):
            events += self._of(item, partial(self._advance, item, token))
        return events

    def _of(self, item: Work, act: Callable[[], Iterable[Event]]) -> list[Event]:
        """What `act` leads to, unless the sequence has ended since its work was begun."""
        request = item.sequence.request_id
        return self._contained(request, act) if request in self.turns else []

    def _goes_on(self, item: Work) -> bool:
        turn = self.turns.get(item.sequence.request_id)
        return turn is not None and turn.goes_on

    def _fail_all(self, work: list[Work], fault: ModelFault) -> list[Event]:
        message = f"the forward pass failed: {fault}"
        log.critical("%s; the engine ends", message, exc_info=fault)
        self.fault = fault
        requests = [item.sequence.request_id for item in work]
        turns = [self.turns[each] for each in requests if each in self.turns]
        return [event for turn in turns for event in self._fail(turn, message)]

    def _rest(self, now: float) -> list[Event]:
        """Nothing is asked for: a checkpoint is moved nearer, or a step of what is prepared. A fault in that ends that one."""
        preparing, prefetch = self.scheduler.preparing, self.scheduler.cache.prefetch
        if prefetch.has_work:
            prefetch.promote_one()
            return []
        events: list[Event] = []
        try:
            events += preparing.begin(now)
            work = preparing.plan()
            if work is not None:
                self.runner.run([work])
                events += preparing.settle(work, now)
        except ModelFault as fault:
            log.critical("a forward pass of idle work failed; the engine ends", exc_info=fault)
            self.fault = fault
            events += preparing.fail(f"the forward pass failed: {fault}", now)
        except Exception as error:
            log.exception("idle work failed")
            events += preparing.fail(f"{type(error).__name__}: {error}", now)
            self._prove()
        return events

    def _accept(self, item: Work, token: int | None, now: float) -> Iterable[Event]:
        """Notes what was computed for one sequence, and the token behind it."""
        turn = self.turns[item.sequence.request_id]
        self.scheduler.settle(item, now)
        progress = turn.progress()
        if token is not None and token != NO_TOKEN:
            turn.accept(token)
        return progress

    def _advance(self, item: Work, token: int | None) -> Iterable[Event]:
        """What one sequence makes of its part of the step."""
        sequence = item.sequence
        turn = self.turns[sequence.request_id]
        if token == NO_TOKEN:
            return self._fail(turn, "no token could be sampled")
        events: list[Event] = [] if token is None else [*turn.tell()]
        if sequence.closing and self._done(turn):
            events += self._finish(turn)
        return events

    def _contained(self, request: RequestId, act: Callable[[], Iterable[Event]]) -> list[Event]:
        """What `act` leads to. A fault in it is that request's own: it ends, and nothing else does."""
        try:
            return list(act())
        except Exception as error:
            log.exception("request %s: its handling failed", request)
            return self._end(request, f"{type(error).__name__}: {error}")

    def _broken(self, broken: Broken) -> list[Event]:
        error = broken.error
        log.error("request %s: its memory failed", broken.sequence.request_id, exc_info=error)
        return self._end(broken.sequence.request_id, f"{type(error).__name__}: {error}")

    def _end(self, request: RequestId, message: str) -> list[Event]:
        """Takes out a request whose handling broke off anywhere, and proves what it leaves behind."""
        self._release(request)
        self._prove()
        return [Failed(request, f"the engine can't go on with this request: {message}")]

    def _prove(self) -> None:
        """Something that handled memory broke off: nobody is served from wrong accounts."""
        self.scheduler.saving.is_doubtful = False
        try:
            check_memory(self.scheduler.cache, self.scheduler.lanes_in_use)
        except AssertionError as error:
            log.critical("the accounts of memory don't hold (%s); the engine ends", error)
            self.fault = StateFault(f"accounts of memory don't hold: {error}")

    def _done(self, turn: Turn) -> bool:
        """Whether no tip is left to compute: it's there, not wanted, or too long for the context."""
        sequence = turn.sequence
        too_long = len(sequence.tokens) > self.scheduler.limits.context_tokens
        return too_long or not turn.prompted.generate.save_tip or sequence.remaining == 0

    def _finish(self, turn: Turn) -> list[Event]:
        finished = turn.finished(self.scheduler.infos(turn.sequence))
        self._release(turn.sequence.request_id)
        return [finished]

    def _fail(self, turn: Turn, message: str) -> list[Event]:
        log.error("request %s failed: %s", turn.sequence.request_id, message)
        self._release(turn.sequence.request_id)
        return [turn.failed(message)]

    def _release(self, request: RequestId) -> None:
        """It's gone afterwards, wherever it was."""
        self.turns.pop(request, None)
        sequence = self.scheduler.find(request)
        if sequence is not None:
            self.runner.rest()
            self.scheduler.remove(sequence)


def refuse(generate: Generate, refusal: Refusal) -> Event:
    log.info("request %s refused: %s: %s", generate.request_id, refusal.code, refusal.message)
    return refused(generate, refusal)
