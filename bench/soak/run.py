"""The run: random requests, several in flight, random faults, and a comparison for every answer. Knows the door; decides by chance."""

import time
from dataclasses import dataclass, field
from random import Random
from typing import Any

from bench.door import PLAIN, Answer, EngineDoor, EngineEnded, EngineSilent
from bench.soak.faults import Disk
from bench.soak.reference import Reference
from bench.soak.talk import Conversation, Talk
from bench.soak.tally import Tally
from engine.api import (
    Cancel,
    ContinuationId,
    Drop,
    Failed,
    FinishReason,
    Retention,
    SetRetention,
)

AT_ONCE = 6
PATIENCE_S = 90.0
PIN_S = 20.0
EMPTY_WITHIN_S = 20.0
REQUESTS_BETWEEN_CHECKS = 100
CHANCES = {"abort": 0.01, "forget": 0.01, "pin": 0.02, "kill": 0.003, "restart": 0.001}
DISK_CHANCES = {"full disk": 0.002, "damage": 0.01}
"""Of each kind, before any event is waited for."""
FULL_REQUESTS = 20
"""Requests that come while the disk is full, before there is room again."""


@dataclass(slots=True)
class Soak:
    """One engine after another on the same configuration. `disk` is there when the engine has that tier."""

    config: dict[str, Any]
    reference: Reference
    random: Random
    tally: Tally
    disk: Disk | None
    talk: Talk = field(init=False)
    door: EngineDoor = field(init=False)
    flying: dict[str, tuple[Conversation, Answer]] = field(default_factory=dict)
    full_until: int | None = None
    checked_at: int = 0

    def __post_init__(self) -> None:
        self.talk = Talk(self.random)
        self.door = self._start()

    def run(self, seconds: float) -> None:
        self.tally.start()
        while self.tally.elapsed_s < seconds:
            self.tally.progress()
            try:
                self._turn()
            except EngineEnded as error:
                self._fail(f"the engine died by itself: {error}")
            except EngineSilent:
                self.tally.stuck += len(self.flying)
                self._fail(f"{len(self.flying)} requests are stuck")
        self._finish()

    def _turn(self) -> None:
        """Perhaps a fault, perhaps a request, then one event."""
        self._misbehave()
        if self.tally.requests - self.checked_at >= REQUESTS_BETWEEN_CHECKS:
            self._settle()
        if len(self.flying) < AT_ONCE and self.random.random() < 0.5:
            self._ask(self.talk.move())
        if self.flying:
            self._take()

    def _finish(self) -> None:
        """Nothing may be left when all have ended and everything is dropped."""
        try:
            self._settle()
            self._check_leaks()
        except (EngineEnded, EngineSilent) as error:
            self.tally.failures += 1
            self.tally.complain(f"at the end: {error}")
        self.door.close()

    def _ask(self, conversation: Conversation) -> None:
        answer = self.door.begin(
            conversation.prompt(),
            self.random.choice((4, 8, 16, 32, 48)),
            conversation.tenant,
            continuation=conversation.name,
            anchors=conversation.anchors(),
            priority=self.random.randrange(3),
            save_tip=True,
        )
        conversation.busy += 1
        self.tally.requests += 1
        self.flying[answer.generate.request_id] = (conversation, answer)

    def _take(self) -> None:
        answer = self.door.take()
        if answer is None or not answer.ended:
            return
        conversation, _ = self.flying.pop(answer.generate.request_id)
        conversation.busy -= 1
        if answer.refusal is not None:
            self._refused(answer)
        else:
            self._compare(conversation, answer)

    def _refused(self, answer: Answer) -> None:
        assert answer.refusal is not None
        if isinstance(answer.refusal, Failed):
            self.tally.failures += 1
            self.tally.complain(f"a request failed: {answer.refusal.message}")
        else:
            self.tally.refused += 1

    def _compare(self, conversation: Conversation, answer: Answer) -> None:
        """A whole answer must be the cold one, one that was called off must begin like it."""
        assert answer.started is not None or not answer.tokens
        assert answer.finished is not None
        self._note_source(answer)
        called_off = answer.finished.reason is FinishReason.CANCELLED
        if called_off and not answer.tokens:
            return
        cold = self.reference.ask(answer)
        expected = cold.tokens[: len(answer.tokens)] if called_off else cold.tokens
        self.tally.compared += 1
        if answer.tokens == expected:
            if answer.finished.ledger is not None and not called_off:
                conversation.answered(answer.generate.prompt, answer.finished.ledger)
            return
        assert cold.started is not None
        assert cold.started.token_ids is not None
        if self.reference.is_tie(cold.started.token_ids, answer.tokens, expected):
            self.tally.ties += 1
        else:
            self.tally.wrong += 1
            self.tally.complain(f"{describe(answer)} gave {answer.tokens}, not {expected}")

    def _note_source(self, answer: Answer) -> None:
        source = answer.started.source if answer.started else None
        if source is None:
            return
        self.tally.resumed_from(str(source.tier))
        if not source.continuation.startswith(f"{answer.generate.tenant}/"):
            self.tally.wrong += 1
            self.tally.complain(f"{describe(answer)} read the state of another tenant")

    def _misbehave(self) -> None:
        chances = CHANCES | (DISK_CHANCES if self.disk else {})
        due = [kind for kind, chance in chances.items() if self.random.random() < chance]
        if self.disk and self.full_until is not None and self.tally.requests >= self.full_until:
            self.disk.free(self.door.process.pid)
            self.full_until = None
        for kind in due:
            self._commit(kind)

    def _commit(self, kind: str) -> None:
        """One fault or one rudeness."""
        match kind:
            case "abort" if self.flying:
                request = self.random.choice(list(self.flying))
                self.door.send(Cancel(self.flying[request][1].generate.request_id))
                self.tally.aborted += 1
            case "forget":
                gone = self.talk.forget()
                if gone is not None:
                    self.door.send(Drop(ContinuationId(gone.name), "forgotten"))
            case "pin":
                self._pin()
            case "kill":
                self.door.process.kill()
                self._replace("kills")
            case "restart":
                self._settle()
                self._replace("restarts")
            case "full disk" if self.disk and self.full_until is None:
                self.disk.fill(self.door.process.pid)
                self.full_until = self.tally.requests + FULL_REQUESTS
                self.tally.fault("full disks")
            case "damage" if self.disk and self.disk.damage(self.random):
                self.tally.fault("damaged files")

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

    def _settle(self) -> None:
        """Lets all that is in flight end; then no lane may be taken and nobody may wait."""
        self.checked_at = self.tally.requests
        while self.flying:
            self._take()
        snapshot = self.door.snapshot()
        if snapshot.lanes or snapshot.waiting:
            self.tally.stuck += len(snapshot.lanes) + snapshot.waiting
            self.tally.complain(f"nothing is in flight, and these are not free: {snapshot.lanes}")

    def _check_leaks(self) -> None:
        """With everything dropped each tier must come out empty, soon."""
        for each in self.door.snapshot().continuations:
            self.door.send(Drop(each.continuation, "the end"))
        deadline = time.monotonic() + EMPTY_WITHIN_S
        while True:
            snapshot = self.door.snapshot()
            held = [tier for tier in snapshot.tiers if tier.used_bytes]
            if not held and not snapshot.continuations:
                return
            if time.monotonic() > deadline:
                break
            time.sleep(0.2)
        self.tally.leaks += len(held) + len(snapshot.continuations)
        self.tally.complain(f"everything was dropped, and this is left: {held or snapshot}")

    def _fail(self, what: str) -> None:
        self.tally.failures += 1
        self.tally.complain(what)
        self.door.process.kill()
        self._replace(None)

    def _replace(self, kind: str | None) -> None:
        """Another engine on the same directories; what was in flight is cut off."""
        if kind is not None:
            self.tally.fault(kind)
        self.tally.cut_off += len(self.flying)
        for conversation, _ in self.flying.values():
            conversation.busy -= 1
        self.flying.clear()
        self.full_until = None
        self.door.close()
        self.door = self._start()

    def _start(self) -> EngineDoor:
        return EngineDoor(self.config, PLAIN, PATIENCE_S)


def describe(answer: Answer) -> str:
    started = answer.started
    if started is None:
        return answer.generate.request_id
    return (
        f"{answer.generate.request_id} ({started.prompt_tokens} prompt tokens, {started.reused_tokens} reused from "
        f"{started.source.tier if started.source else 'nothing'})"
    )
