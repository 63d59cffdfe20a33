"""The run: random requests, several in flight, random faults, and a comparison for every answer. Knows the door; decides by chance."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from bench.door import Answer, EngineDoor, EngineEnded, EngineSilent
from bench.soak.faults import Disk, pause
from bench.soak.life import Life
from bench.soak.reference import Reference
from bench.soak.talk import MOVES, Conversation, Talk
from bench.soak.tally import Tally
from engine.api import (
    Cancel,
    ContinuationId,
    Drop,
    Failed,
    FinishReason,
    Prefetch,
    Prepare,
    PrepareOutcome,
    RequestId,
    Retention,
    SetRetention,
    TakeSnapshot,
    TenantKey,
    Tier,
)

AT_ONCE = 10
ANSWER_TOKENS = (4, 4, 8, 8, 16, 16, 32, 32, 150)
"""Asked for at most; a few answers are longer than two pages."""
PATIENCE_S = 90.0
"""Without any event, and of one request in all."""
PIN_S = 20.0
PAUSE_S = 1.0
QUIET_S = 1.0
EMPTY_WITHIN_S = 20.0
LOOK_EACH_S = 0.5
FAULT_EACH = 4
"""So many requests, on average."""
ABORT_CHANCE = 0.01
"""Before any event is waited for."""
ABORT_AT_ONCE_CHANCE = 0.03
FULL_REQUESTS = 20
"""Requests that come while the disk is full, before there is room again."""
FAULTS = {
    "kills": 2,
    "restarts": 1,
    "pauses": 2,
    "full disks": 1,
    "lost disks": 1,
    "damaged files": 5,
    "clear-outs": 1,
    "quiet spells": 3,
    "pins": 3,
    "forgotten conversations": 4,
}
"""How many of each make a round; each round has an order of its own."""
REQUIRED = (
    *MOVES,
    *FAULTS,
    *(f"resumed from {tier}" for tier in Tier),
    *(f"called off {when}" for when in ("while waiting", "in the prompt", "in the answer")),
    f"prepared: {PrepareOutcome.DONE}",
    *("foreign files", "full disks met", "lost disks met", "dropped: damaged"),
)
"""Kinds that a run without any of them says nothing about."""


@dataclass(slots=True)
class Soak:
    """One engine after another on the same configuration; every other one checks its own books after every step."""

    config: dict[str, Any]
    reference: Reference
    random: Random
    tally: Tally
    disk: Disk
    talk: Talk = field(init=False)
    life: Life = field(init=False)
    flying: dict[RequestId, tuple[Conversation, Answer]] = field(default_factory=dict)
    full_until: int | None = None
    lives: int = 0
    due: list[str] = field(default_factory=list)
    fault_at: int = 0
    look_at: float = 0.0

    def __post_init__(self) -> None:
        self.talk = Talk(self.random)
        self.life = self._start()

    @property
    def door(self) -> EngineDoor:
        return self.life.door

    def run(self, seconds: float) -> None:
        self.tally.start()
        while self.tally.elapsed_s < seconds:
            self.tally.progress()
            self._guarded(self._turn)
        self._guarded(self._clear_out)
        self._end_life()

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except EngineEnded as error:
            self._fail(f"the engine died by itself: {error}")
        except EngineSilent:
            self._find_stuck(0.0)

    def _turn(self) -> None:
        """Perhaps a fault, perhaps a request, then one event."""
        self._misbehave()
        if len(self.flying) < AT_ONCE and self.random.random() < 0.5:
            self._ask()
        if self.flying:
            self._take()
        self._find_stuck(PATIENCE_S)

    # --- requests ------------------------------------------------------------------------------

    def _ask(self) -> None:
        kind, conversation = self.talk.move()
        answer = self.door.begin(
            conversation.prompt(),
            self.random.choice(ANSWER_TOKENS),
            conversation.tenant,
            continuation=conversation.name,
            anchors=conversation.anchors(),
            priority=self.random.randrange(3),
            save_tip=True,
        )
        conversation.busy += 1
        self.tally.requests += 1
        self.tally.note(kind)
        self.flying[answer.generate.request_id] = (conversation, answer)
        if self.random.random() < ABORT_AT_ONCE_CHANCE:
            self.door.send(Cancel(answer.generate.request_id))

    def _take(self) -> None:
        answer = self.door.take()
        if answer is None or not answer.ended:
            return
        conversation, _ = self.flying.pop(answer.generate.request_id)
        conversation.busy -= 1
        if isinstance(answer.refusal, Failed):
            self._complain_of_failure(f"a request failed: {answer.refusal.message}")
        elif answer.refusal is not None:
            self.tally.note(f"refused: {answer.refusal.code}")
        else:
            self._judge(conversation, answer)

    def _judge(self, conversation: Conversation, answer: Answer) -> None:
        """A whole answer must be the cold one, one that was called off must begin like it."""
        assert answer.finished is not None
        called_off = answer.finished.reason is FinishReason.CANCELLED
        self._note_source(answer)
        if called_off:
            self.tally.note(f"called off {stage(answer)}")
        if answer.started is None or (called_off and not answer.tokens):
            return
        cold = self.reference.ask(answer)
        expected = cold.tokens[: len(answer.tokens)] if called_off else cold.tokens
        self.tally.compared += 1
        assert cold.started is not None
        prompt = cold.started.token_ids
        assert prompt is not None
        if (answer.started.token_ids, answer.tokens) == (prompt, expected):
            if answer.finished.ledger is not None and not called_off:
                conversation.answered(answer.generate.prompt, answer.finished.ledger)
        elif self.reference.is_tie(prompt, answer.tokens, expected):
            self.tally.ties += 1
        else:
            self.tally.wrong += 1
            self.tally.complain(f"{describe(answer)} gave {answer.tokens}, not {expected}")

    def _note_source(self, answer: Answer) -> None:
        source = answer.started.source if answer.started else None
        if source is None:
            return
        self.tally.note(f"resumed from {source.tier}")
        if not source.continuation.startswith(f"{answer.generate.tenant}/"):
            self.tally.wrong += 1
            self.tally.complain(f"{describe(answer)} read the state of another tenant")

    def _find_stuck(self, patience_s: float) -> None:
        """Requests that have been under way for longer than that are; the engine can't go on with them."""
        now = time.perf_counter()
        old = [each for _, each in self.flying.values() if now - each.sent > patience_s]
        if old:
            self.tally.stuck += len(old)
            self._fail(f"{len(old)} requests are stuck: {', '.join(map(describe, old))}")

    # --- faults --------------------------------------------------------------------------------

    def _misbehave(self) -> None:
        now = self.tally.elapsed_s
        if now >= self.look_at:
            self.look_at = now + LOOK_EACH_S
            self.door.send(TakeSnapshot(RequestId("look")))
        if self.full_until is not None and self.tally.requests >= self.full_until:
            self._free_disk()
        if self.flying and self.random.random() < ABORT_CHANCE:
            self.door.send(Cancel(self.random.choice(list(self.flying))))
        if self.tally.requests >= self.fault_at:
            self.fault_at = self.tally.requests + self.random.randint(1, 2 * FAULT_EACH - 1)
            self._commit(self._next_fault())

    def _next_fault(self) -> str:
        if not self.due:
            self.due = [kind for kind, count in FAULTS.items() for _ in range(count)]
            self.random.shuffle(self.due)
        return self.due.pop()

    def _commit(self, kind: str) -> None:
        """One fault or one rudeness; noted as often as there was something to do it to."""
        happened = 1
        match kind:
            case "kills":
                self._kill()
            case "restarts":
                self._settle()
                self._replace()
            case "pauses":
                pause(self.life.pid, self.random.uniform(0, PAUSE_S))
            case "full disks":
                self.disk.fill(self.life.pid)
                self.full_until = self.tally.requests + FULL_REQUESTS
            case "lost disks":
                happened = int(self.disk.lose())
            case "damaged files":
                happened = self.disk.damage(self.random)
            case "clear-outs":
                self._clear_out()
            case "quiet spells":
                self._be_quiet()
            case "pins":
                self._pin()
            case "forgotten conversations":
                happened = int(self._forget())
        self.tally.note(kind, happened)

    def _kill(self) -> None:
        """In the middle of work, at any moment of it."""
        if not self.flying:
            self._ask()
        time.sleep(self.random.uniform(0, 0.1))
        self._end_by_force()
        self._replace()

    def _be_quiet(self) -> None:
        """Nothing is asked for a while, and the engine may prepare what comes next."""
        self._settle()
        chosen = self.random.sample(self.talk.all, min(4, len(self.talk.all)))
        for each in chosen[:2]:
            name = ContinuationId(each.name)
            worth = Retention(name, self.random.randrange(3), time.time())
            ahead = RequestId(f"ahead of {self.tally.requests} for {name}")
            prompt, anchors = each.prompt(), each.anchors()
            self.door.send(Prepare(ahead, TenantKey(each.tenant), name, prompt, worth, anchors))
        self.door.send(Prefetch(tuple(ContinuationId(each.name) for each in chosen[2:])))
        time.sleep(self.random.uniform(0, QUIET_S))

    def _pin(self) -> None:
        """New standing for a few conversations, one of them pinned for some seconds."""
        chosen = self.random.sample(self.talk.all, min(3, len(self.talk.all)))
        pinned_until = time.time() + PIN_S
        entries = [
            Retention(
                ContinuationId(each.name),
                self.random.randrange(3),
                time.time(),
                None if at else pinned_until,
            )
            for at, each in enumerate(chosen)
        ]
        self.door.send(SetRetention(tuple(entries)))

    def _forget(self) -> bool:
        gone = self.talk.forget()
        if gone is not None:
            self.door.send(Drop(ContinuationId(gone.name), "forgotten"))
        return gone is not None

    def _free_disk(self) -> None:
        self.disk.free(self.life.pid)
        self.full_until = None

    # --- what must hold now and then -----------------------------------------------------------

    def _settle(self) -> None:
        """Lets all that is in flight end; then no lane may be taken and nobody may wait."""
        while self.flying:
            self._take()
            self._find_stuck(PATIENCE_S)
        snapshot = self.door.snapshot()
        if snapshot.lanes or snapshot.waiting:
            self.tally.stuck += len(snapshot.lanes) + snapshot.waiting
            self.tally.complain(f"nothing is in flight, and these are not free: {snapshot.lanes}")

    def _clear_out(self) -> None:
        """With everything dropped each tier must come out empty, soon; files too, on the disk and open ones."""
        self._settle()
        deadline = time.monotonic() + EMPTY_WITHIN_S
        while left := self._left():
            if time.monotonic() > deadline:
                self.tally.leaks += len(left)
                self.tally.complain(f"everything was dropped, and this is left: {left}")
                return
            for each in self.door.snapshot().continuations:
                self.door.send(Drop(each.continuation, "cleared out"))
            time.sleep(0.2)

    def _left(self) -> list[object]:
        snapshot = self.door.snapshot()
        tiers = [tier for tier in snapshot.tiers if tier.used_bytes]
        handles = self.life.handles_left_open
        open_files = [f"{handles} files are open that weren't"] if handles > 0 else []
        return [*snapshot.continuations, *tiers, *self.disk.files(), *open_files]

    # --- lives ---------------------------------------------------------------------------------

    def _fail(self, what: str) -> None:
        self._complain_of_failure(what)
        self._end_by_force()
        self._replace()

    def _end_by_force(self) -> None:
        self.door.process.kill()
        self.door.process.wait()

    def _complain_of_failure(self, what: str) -> None:
        self.tally.failures += 1
        self.tally.complain(f"{what}\n{self.life.last_words()}")

    def _replace(self) -> None:
        """Another engine on the same directories; what was in flight is cut off."""
        self._end_life()
        self.tally.note("foreign files", self.disk.litter(self.random))
        if self.random.random() < 0.5:
            self.tally.note("damaged files", self.disk.damage(self.random))
        self.life = self._start()

    def _end_life(self) -> None:
        """One that was not killed must end well."""
        self.tally.note("requests cut off", len(self.flying))
        for conversation, _ in self.flying.values():
            conversation.busy -= 1
        self.flying.clear()
        self.full_until = None
        killed = self.door.process.poll() is not None
        status = self.life.end()
        if status != 0 and not killed:
            self._complain_of_failure(f"the engine ended with status {status}")

    def _start(self) -> Life:
        self.lives += 1
        config = self.config | {"check_integrity": self.lives % 2 == 1}
        return Life(config, PATIENCE_S, self.tally)


def stage(answer: Answer) -> str:
    """How far it was."""
    if answer.started is None:
        return "while waiting"
    return "in the answer" if answer.tokens else "in the prompt"


def describe(answer: Answer) -> str:
    started = answer.started
    if started is None:
        return answer.generate.request_id
    return (
        f"{answer.generate.request_id} ({started.prompt_tokens} prompt tokens, {started.reused_tokens} reused from "
        f"{started.source.tier if started.source else 'nothing'})"
    )
