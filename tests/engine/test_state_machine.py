"""Anything in any order: requests, forks, rewinds, cancels, prompts prepared, hints, evictions, pins, disk work, restarts, damage, a full
disk. After each rule all is accounted for; every token that is said is the one that a cold engine says.
"""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from errno import ENOSPC
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from engine.api import (
    CheckpointId,
    ContinuationId,
    Failed,
    Finished,
    FinishReason,
    Prepared,
    PrepareOutcome,
    Rejected,
    RequestId,
    Retention,
    Started,
)
from engine.cache.disk_files import Kind
from engine.cache.integrity import check
from tests.engine.fake_model import END, FakeModel, oracle
from tests.engine.rig import Rig

STOP_EVERY = 40
CONTINUATIONS = 4
CONTEXT = 140
DISK_BYTES = 60_000
THEN = ("nothing", "request", "another", "newer", "cancel", "drop")
BEFORE = ("nothing", "settle", "restart", "damage")


@dataclass(frozen=True, slots=True)
class Ask:
    """`share` per cent of the line `back` lines ago, and `new` tokens; few seeds, so that requests coincide. `fork` names another
    continuation for it than the line's.
    """

    back: int
    share: int
    new: int
    seed: int
    fork: str | None
    stranger: bool
    anchors: list[int]
    most: int
    priority: int


@dataclass(frozen=True, slots=True)
class History:
    """Tokens that a client could go on from."""

    tokens: list[int]
    continuation: str
    tenant: str


continuations = st.sampled_from([f"c{number}" for number in range(CONTINUATIONS)])
requests = st.builds(
    Ask,
    back=st.sampled_from([0, 0, 1, 2]),
    share=st.sampled_from([100, 100, 100, 70, 30]),
    new=st.integers(1, 25),
    seed=st.integers(0, 2),
    fork=st.none() | continuations,
    stranger=st.sampled_from([False, False, False, True]),
    anchors=st.lists(st.integers(1, 110), max_size=2),
    most=st.integers(1, 12),
    priority=st.integers(0, 3),
)


def no_space(*_: object) -> None:
    raise OSError(ENOSPC, "No space left on device")


class Engine(RuleBasedStateMachine):
    """`lines` are the latest histories a client could go on from; `asked` are the requests not yet judged, with their prompts, `ahead`
    the prompts that are being prepared.
    """

    def __init__(self) -> None:
        super().__init__()
        self.disk = Path(tempfile.mkdtemp(prefix="state-machine-"))
        self.lives = 0
        self.lines = [History([], "c0", "t")]
        self.asked: dict[RequestId, tuple[History, int]] = {}
        self.ahead: dict[RequestId, History] = {}
        self.now = 1000.0

    @initialize(device=st.sampled_from([26, 40, 70]), host=st.sampled_from([0, 25]))
    def begin(self, device: int, host: int) -> None:
        self.device, self.host = device, host
        self.live()

    def live(self) -> None:
        self.lives += 1
        self.rig = Rig(
            self.device,
            self.host,
            lanes=2,
            context=CONTEXT,
            max_waiting=4,
            model=FakeModel(STOP_EVERY),
            disk=self.disk,
            disk_bytes=DISK_BYTES,
            disk_jobs=0,
            life=f"life{self.lives}.",
        )
        self.rig.now = self.now
        self.asked, self.ahead = {}, {}

    # --- requests ------------------------------------------------------------------------------

    @rule(request=requests)
    def submit(self, request: Ask) -> None:
        """Goes on from a known line, or rewinds it, or forks it, as the continuation's name has it."""
        prompt = self.prompt(request)
        anchors = [at for at in request.anchors if at <= len(prompt.tokens)]
        self.ask(prompt, request.most, anchors=anchors, priority=request.priority)

    def prompt(self, request: Ask) -> History:
        line = self.lines[-1 - request.back % len(self.lines)]
        kept = line.tokens[: len(line.tokens) * request.share // 100]
        new = (10 + (request.seed * 37 + at * 11) % 180 for at in range(request.new))
        tenant = "u" if request.stranger else line.tenant
        return History([*kept, *new], request.fork or line.continuation, tenant)

    @rule(
        request=requests,
        seed=st.integers(0, 1),
        steps=st.integers(0, 10),
        then=st.sampled_from(THEN),
        other=requests,
    )
    def prepare(self, request: Ask, seed: int, steps: int, then: str, other: Ask) -> None:
        """A long prompt ahead of a request that may or may not come; some of it is computed, if nothing else is asked for."""
        line = self.prompt(request)
        more = [10 + (seed * 59 + at * 13) % 180 for at in range(CONTEXT - 20 - len(line.tokens))]
        prompt, lost = replace(line, tokens=[*line.tokens, *more]), len(self.rig.drop_reasons)
        name = self.get_ready(prompt, request)
        if not self.rig.loop.turns:
            for _ in range(steps):
                self.rig.step()
            assert "memory" not in self.rig.drop_reasons[lost:], "something was lost for it"
        if then == "request":
            self.ask(replace(prompt, tokens=[*prompt.tokens, 9 + seed]), request.most)
        elif then == "another":
            self.submit(other)
        elif then == "newer":
            self.get_ready(replace(prompt, tokens=prompt.tokens[: 60 + other.new]), other)
        elif then == "cancel":
            self.rig.cancel(name)
        elif then == "drop":
            self.rig.drop(prompt.continuation)

    def get_ready(self, prompt: History, request: Ask) -> RequestId:
        name = self.rig.prepare(
            prompt.tokens,
            prompt.continuation,
            prompt.tenant,
            anchors=[at for at in request.anchors if at <= len(prompt.tokens)],
            priority=request.priority,
            ladder_tokens=16 if request.seed else None,
        )
        self.ahead[name] = prompt
        return name

    @rule(
        names=st.lists(continuations, min_size=1, max_size=3), jobs=st.integers(0, 9), then=requests
    )
    def wake(self, names: list[str], jobs: int, then: Ask) -> None:
        """All is on disk only, some of it is hinted at, and a request comes before or after that is there."""
        self.settle()
        self.restart()
        self.rig.prefetch(*names)
        for _ in range(jobs):
            self.rig.step()
            self.rig.work(1)
        self.submit(then)

    @rule(which=st.integers(0, 3))
    def cancel_prepare(self, which: int) -> None:
        if self.ahead:
            self.rig.cancel(list(self.ahead)[which % len(self.ahead)])

    @rule(names=st.lists(continuations, max_size=3), steps=st.integers(0, 4))
    def hint(self, names: list[str], steps: int) -> None:
        self.rig.prefetch(*names, "nobody")
        for _ in range(steps):
            self.rig.work(2)
            self.rig.step()

    def ask(self, prompt: History, most: int, **options: Any) -> None:
        name = self.rig.submit(
            prompt.tokens, prompt.continuation, prompt.tenant, max_tokens=most, **options
        )
        self.asked[name] = (prompt, most)

    @rule(before=st.sampled_from(BEFORE), request=requests)
    def turn(self, before: str, request: Ask) -> None:
        """A whole turn, and what may come right before it."""
        if before != "nothing":
            self.settle()
        if before in ("restart", "damage"):
            self.restart()
        if before == "damage":
            kind = (Kind.PAGE, Kind.STATE)[request.seed % 2]
            self.damage(request.most, kind, cut=request.fork is None, every=True)
        self.submit(request)
        self.finish()

    @rule(steps=st.integers(1, 12))
    def decode(self, steps: int) -> None:
        for _ in range(steps):
            self.rig.step()

    @rule(which=st.integers(0, 3))
    def cancel(self, which: int) -> None:
        if self.asked:
            self.rig.cancel(list(self.asked)[which % len(self.asked)])

    @rule(seed=st.integers(0, 3), settled=st.booleans())
    def crowd(self, seed: int, settled: bool) -> None:
        """A prompt that takes most of the device: what is there must leave, to disk if that is where it is too."""
        if settled:
            self.settle()
        tokens = [10 + (seed * 53 + at * 7) % 180 for at in range(CONTEXT - 20)]
        self.ask(History(tokens, "crowd", "t"), 2, save_tip=False)
        self.finish()

    def finish(self) -> None:
        """All that is in flight, with a disk that works; no pin lasts that long."""
        self.rig.now += 100
        self.rig.disk_jobs = 1000
        self.rig.run()
        self.rig.disk_jobs = 0

    # --- worth ---------------------------------------------------------------------------------

    @rule(name=continuations, some=st.booleans())
    def drop(self, name: str, some: bool) -> None:
        names = (*self.names(name)[::2], CheckpointId("none"))
        self.rig.drop(name, names if some else None)

    @rule(name=continuations, priority=st.integers(0, 3), pin=st.booleans(), expend=st.booleans())
    def retain(self, name: str, priority: int, pin: bool, expend: bool) -> None:
        until = self.rig.now + 20 if pin else None
        names = self.names(name) if expend else ()
        told = Retention(ContinuationId(name), priority, self.rig.now, until, names)
        self.rig.retain(told)

    def names(self, continuation: str) -> tuple[CheckpointId, ...]:
        known = self.rig.checkpoints(continuation)
        return tuple(each.checkpoint for each in known.values())

    # --- the disk ------------------------------------------------------------------------------

    @rule(jobs=st.integers(1, 6))
    def work(self, jobs: int) -> None:
        """Writes or restores, as the engine has asked for."""
        self.rig.work(jobs)
        self.rig.step()

    @rule()
    def settle(self) -> None:
        """All that can be on disk is there: from now on demotion costs nothing."""
        self.rig.disk_jobs = 1000
        self.rig.settle()
        self.rig.disk_jobs = 0

    @rule(
        which=st.integers(0, 30),
        kind=st.sampled_from(Kind),
        cut=st.booleans(),
        every=st.booleans(),
    )
    def damage(self, which: int, kind: Kind, cut: bool, every: bool) -> None:
        """A file that is there, or every one of a kind, loses a bit or its end."""
        names = sorted(self.rig.files.sizes(kind))
        for name in names if every else names[which : which + 1]:
            path = self.rig.files.path(kind, name)
            data = bytearray(path.read_bytes())
            at = which * len(data) // 31
            if cut:
                del data[at:]
            elif data:
                data[at] ^= 4
            path.write_bytes(data)

    @rule(full=st.booleans())
    def fill(self, full: bool) -> None:
        """The disk is full from now on, or not any more; a failing tier is tried again."""
        self.rig.now += 70
        if full:
            self.rig.files.write = no_space  # type: ignore[method-assign]
        else:
            self.rig.files.__dict__.pop("write", None)

    @rule()
    def restart(self) -> None:
        """Killed. What was said by then was right; what was being written is never finished."""
        self.verify()
        self.now = self.rig.now
        self.rig.kill()
        self.live()

    # --- what always holds ---------------------------------------------------------------------

    @invariant()
    def all_is_accounted_for(self) -> None:
        if self.lives:
            check(self.rig.cache, self.rig.scheduler.lanes_in_use)
            assert self.rig.cache.disk is not None
            assert self.rig.cache.disk.tier.used_bytes <= DISK_BYTES

    @invariant()
    def what_is_said_is_right(self) -> None:
        self.verify()

    def verify(self) -> None:
        for request, (prompt, most) in list(self.asked.items()):
            said = self.rig.output(request)
            expected = oracle(prompt.tokens, most, STOP_EVERY)
            assert said == [token for token in expected if token != END][: len(said)]
            if request not in self.rig.loop.turns:
                self.verify_end(request, prompt, expected, said)
                del self.asked[request]
        for request in [each for each in self.ahead if self.rig.events[each]]:
            self.verify_prepared(self.ahead.pop(request), self.rig.prepared(request))

    def verify_prepared(self, prompt: History, end: Prepared) -> None:
        assert end.outcome is not PrepareOutcome.FAILED, end
        assert end.prompt_tokens == len(prompt.tokens)
        if end.outcome is PrepareOutcome.DONE:
            assert end.checkpoints[-1].position == len(prompt.tokens)

    def verify_end(
        self, request: RequestId, prompt: History, expected: list[int], said: list[int]
    ) -> None:
        end = self.rig.end(request)
        assert not isinstance(end, Failed) or "pinned" in end.message, end
        for event in self.rig.events[request]:
            if isinstance(event, Started):
                assert event.reused_tokens < len(prompt.tokens)
                assert event.reused_tokens <= event.matched_tokens
        if isinstance(end, Finished) and end.reason is FinishReason.STOP:
            assert expected[-1] == END
            assert len(said) == len(expected) - 1
        if isinstance(end, Finished) and end.ledger is not None:
            tokens = self.rig.line(prompt.tokens, request)
            kept = tokens if len(tokens) < CONTEXT - 40 else []
            self.lines = [*self.lines[-4:], replace(prompt, tokens=kept)]
        if isinstance(end, Rejected):
            assert not said

    def teardown(self) -> None:
        if self.lives:
            self.fill(full=False)
            self.finish()
            self.verify()
            for number in range(CONTINUATIONS):
                self.rig.drop(f"c{number}")
            self.rig.drop("crowd")
            self.rig.disk_jobs = 1000
            self.rig.rest()
            assert not any(not self.rig.events[each] for each in self.ahead)
            self.settle()
            assert self.rig.cache.pages.device.used == self.rig.cache.pages.host.used == 0
            assert not any(self.rig.files.sizes(kind) for kind in Kind)
            self.rig.kill()
        shutil.rmtree(self.disk)


Engine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
test_integrity_of_anything_in_any_order: Callable[[], None] = Engine.TestCase
