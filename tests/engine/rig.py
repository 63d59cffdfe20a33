"""The engine's loop around the fake model, driven step by step by a test. Knows the door's values; no process, no text."""

import struct
from collections import defaultdict
from collections.abc import Sequence as Ordered
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.api import (
    Anchor,
    AnchorKind,
    Cancel,
    CheckpointId,
    CheckpointInfo,
    ContinuationId,
    Delta,
    DeltaKind,
    Drop,
    Dropped,
    Event,
    Failed,
    Finished,
    FinishReason,
    Generate,
    LedgerEntry,
    Message,
    Prefetch,
    Prepare,
    Prepared,
    Prompt,
    Rejected,
    RequestId,
    Retention,
    SetRetention,
    Snapshot,
    Started,
    TakeSnapshot,
    TenantKey,
)
from engine.cache.disk_files import DiskFiles, Identity
from engine.cache.disk_worker import DiskWorker
from engine.cache.store import Cache
from engine.loop import Loop
from engine.models.batch import CachePools
from engine.planner.admission import Limits
from engine.planner.memory import Geometry, MemoryPlan
from engine.planner.sharing import Sharing
from engine.planner.step import Budget
from engine.runner import Model, Runner
from engine.scheduler import Scheduler
from engine.turns import Prompted, PromptedAhead
from tests.engine.fake_model import END, VOCAB, FakeModel, fake_pools

BUDGET = Budget(alone=64, mixed=16, least=4)
SHARING = Sharing(least=32, slack=8)


@dataclass(frozen=True, slots=True)
class FakePiece:
    text: str
    kind: DeltaKind = DeltaKind.TEXT
    call: tuple[str, str] | None = None
    tokens: int = 1


class FakeOutput:
    """Every token is its number as text; `stop_token` plays the stop string, `fault` breaks on a token."""

    def __init__(self, stop_token: int | None = None, fault: int | None = None) -> None:
        self.reasoning_tokens = 0
        self.stopped = False
        self._stop_token = stop_token
        self._fault = fault

    def feed(self, token_id: int) -> Ordered[FakePiece]:
        if token_id == self._fault:
            raise ValueError("a token that can't be read")
        self.stopped = token_id == self._stop_token
        return () if token_id == END else (FakePiece(f"{token_id} "),)

    def finish(self, reason: FinishReason) -> Ordered[FakePiece]:
        return ()

    def ledger_entry(
        self, opener_tokens: Ordered[int], generated_tokens: Ordered[int]
    ) -> LedgerEntry:
        tokens = [*opener_tokens, *generated_tokens]
        if tokens[-1] != END:
            tokens.append(END)
        return LedgerEntry(struct.pack(f"<{len(tokens)}I", *tokens), 0, "fake")


def memory_plan(
    pools: CachePools, host_cells: int, context: int, disk_bytes: int = 0
) -> MemoryPlan:
    image = pools.recurrent[0].nbytes + pools.conv[0].nbytes
    geometry = Geometry(pools.page_tokens, pools.kv[0].nbytes, image, context)
    cells = -(-image // geometry.page_bytes)
    lanes, device_cells = len(pools.recurrent), len(pools.kv)
    return MemoryPlan(geometry, lanes, cells, device_cells, host_cells, disk_bytes)


def identity(plan: MemoryPlan, weights: str = "w") -> Identity:
    shape = plan.geometry
    return Identity(weights, "cpu", shape.page_tokens, shape.page_bytes, shape.image_bytes)


class Rig:
    """One engine. Events of each request are in `events`; `dropped` collects what ceased to exist. Before each step the disk's thread,
    played here, does `disk_jobs` jobs.
    """

    def __init__(
        self,
        device_cells: int = 200,
        host_cells: int = 200,
        lanes: int = 4,
        context: int = 400,
        max_waiting: int = 16,
        budget: Budget = BUDGET,
        model: FakeModel | None = None,
        real: tuple[Model, CachePools] | None = None,
        stop_tokens: frozenset[int] = frozenset({END}),
        sharing: Sharing = SHARING,
        disk: Path | None = None,
        disk_bytes: int = 1 << 30,
        disk_jobs: int = 1000,
        weights: str = "w",
        life: str = "c",
    ) -> None:
        """`real` takes the place of the fake model and of `device_cells` and `lanes`. `life` starts the names of checkpoints."""
        self.model = model or FakeModel()
        self.now = 1000.0
        self.disk_jobs = disk_jobs
        chosen, pools = real or (self.model, fake_pools(device_cells, lanes))
        plan = memory_plan(pools, host_cells, context, disk_bytes)
        self.worker = DiskWorker()
        self.files = DiskFiles(disk or Path(), identity(plan, weights), durable=False)
        parts = None if disk is None else (self.files, self.worker)
        self.cache = Cache(plan, pools, life, parts)
        if self.cache.disk is not None:
            self.cache.disk.open()
            self.work()
            self.cache.collect(self.now)
        limits = Limits(context, pools.page_tokens, len(pools.kv), max_waiting)
        self.scheduler = Scheduler(self.cache, limits, budget, sharing)
        runner = Runner(chosen, pools, self.cache.lanes, VOCAB if real is None else 1 << 30)
        self.loop = Loop(
            self.scheduler,
            runner,
            stop_tokens,
            self._take,
            lambda: self.now,
            lambda: 7,
            check_integrity=True,
        )
        self.events: dict[RequestId, list[Event]] = defaultdict(list)
        self.dropped: list[CheckpointInfo] = []
        self.drop_reasons: list[str] = []
        self._numbers = 0

    def submit(
        self,
        tokens: Ordered[int],
        continuation: str = "a",
        tenant: str = "t",
        anchors: Ordered[int] = (),
        max_tokens: int | None = 4,
        priority: int = 0,
        pinned_until: float | None = None,
        save_tip: bool = True,
        ladder_tokens: int | None = None,
        banned: Ordered[int] = (),
        output: FakeOutput | None = None,
        name: RequestId | None = None,
        dictated: Ordered[int | None] = (),
    ) -> RequestId:
        """`anchors` are token positions. The prompt's last tokens count as its opener."""
        self._numbers += 1
        self.now += 1.0
        request = name or RequestId(f"r{self._numbers}")
        border = len(tokens)
        generate = Generate(
            request_id=request,
            tenant=TenantKey(tenant),
            continuation=ContinuationId(continuation),
            prompt=Prompt((Message("user"),)),
            retention=Retention(ContinuationId(continuation), priority, self.now, pinned_until),
            max_tokens=max_tokens,
            anchors=tuple(Anchor(AnchorKind.EXPLICIT, 1, border - at) for at in anchors),
            save_tip=save_tip,
            ladder_tokens=ladder_tokens,
        )
        prompted = Prompted(
            generate=generate,
            token_ids=tuple(tokens),
            borders=(0, border),
            opener=tuple(tokens[-2:]),
            output=output or FakeOutput(),
            banned=tuple(banned),
            dictated=tuple(dictated),
        )
        self._take(self.loop.handle(prompted))
        return request

    def prepare(
        self,
        tokens: Ordered[int],
        continuation: str = "a",
        tenant: str = "t",
        anchors: Ordered[int] = (),
        priority: int = 0,
        ladder_tokens: int | None = None,
        name: RequestId | None = None,
    ) -> RequestId:
        """`tokens` are all before the opener; `anchors` are token positions."""
        self._numbers += 1
        self.now += 1.0
        request, border = name or RequestId(f"p{self._numbers}"), len(tokens)
        prepare = Prepare(
            request_id=request,
            tenant=TenantKey(tenant),
            continuation=ContinuationId(continuation),
            prompt=Prompt((Message("user"),)),
            retention=Retention(ContinuationId(continuation), priority, self.now),
            anchors=tuple(Anchor(AnchorKind.EXPLICIT, 1, border - at) for at in anchors),
            ladder_tokens=ladder_tokens,
        )
        self._take(self.loop.handle(PromptedAhead(prepare, tuple(tokens), (0, border))))
        return request

    def prefetch(self, *continuations: str) -> None:
        self._take(self.loop.handle(Prefetch(tuple(map(ContinuationId, continuations)))))

    def rest(self, limit: int = 3000) -> None:
        """Steps until there's nothing to do, nothing idle either, as far as the disk's thread does its part."""
        self.step()
        for _ in range(limit):
            if not self.loop.turns and not self.scheduler.has_idle_work and not self.worker.pending:
                return
            self.step()
        raise AssertionError("the engine doesn't come to rest")

    def prepared(self, request: RequestId) -> Prepared:
        """The only event it has."""
        (event,) = self.events[request]
        assert isinstance(event, Prepared)
        return event

    def step(self) -> None:
        self.now += 0.01
        self.work(self.disk_jobs)
        self._take(self.loop.step())

    def work(self, jobs: int = 1000) -> None:
        """Plays the disk's thread."""
        while jobs and self.worker.run_next():
            jobs -= 1

    def settle(self) -> None:
        """Steps until all that can be on disk is there."""
        self.step()
        while self.worker.pending:
            self.step()

    def kill(self) -> None:
        """The process is gone, as with SIGKILL: what the disk has not done is never done."""
        self.files.close()

    def run(self, limit: int = 3000) -> None:
        """Steps until nothing is in flight."""
        for _ in range(limit):
            if not self.loop.turns:
                return
            self.step()
        raise AssertionError("the engine doesn't come to an end")

    def ask(self, tokens: Ordered[int], continuation: str = "a", **options: Any) -> RequestId:
        """`submit` and `run`."""
        request = self.submit(tokens, continuation, **options)
        self.run()
        return request

    def cancel(self, request: RequestId) -> None:
        self._take(self.loop.handle(Cancel(request)))

    def retain(self, *entries: Retention) -> None:
        self._take(self.loop.handle(SetRetention(entries)))

    def drop(self, continuation: str, names: tuple[CheckpointId, ...] | None = None) -> None:
        self._take(self.loop.handle(Drop(ContinuationId(continuation), "asked", names)))

    def snapshot(self) -> Snapshot:
        (event,) = self.loop.handle(TakeSnapshot(RequestId("snapshot")))
        assert isinstance(event, Snapshot)
        return event

    def started(self, request: RequestId) -> Started:
        (event,) = [each for each in self.events[request] if isinstance(each, Started)]
        return event

    def end(self, request: RequestId) -> Finished | Rejected | Failed:
        """The last event; there is exactly one of its kind."""
        ends = [e for e in self.events[request] if isinstance(e, Finished | Rejected | Failed)]
        assert len(ends) == 1
        assert self.events[request][-1] is ends[0]
        return ends[0]

    def finished(self, request: RequestId) -> Finished:
        event = self.end(request)
        assert isinstance(event, Finished), event
        return event

    def output(self, request: RequestId) -> list[int]:
        """The tokens published as text."""
        deltas = [each for each in self.events[request] if isinstance(each, Delta)]
        return [int(token) for delta in deltas for token in delta.text.split()]

    def line(self, tokens: Ordered[int], request: RequestId) -> list[int]:
        """The prompt with the turn as its ledger replays it."""
        ledger = self.finished(request).ledger
        assert ledger is not None
        count = len(ledger.tokens) // 4
        return [*tokens[:-2], *struct.unpack(f"<{count}I", ledger.tokens)]

    def checkpoints(self, continuation: str) -> dict[int, CheckpointInfo]:
        """Position → checkpoint, of one continuation."""
        found = [
            each for each in self.snapshot().continuations if each.continuation == continuation
        ]
        return {info.position: info for each in found for info in each.checkpoints}

    def _take(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Dropped):
                self.dropped.extend(event.checkpoints)
                self.drop_reasons.extend([event.reason] * len(event.checkpoints))
            else:
                self.events[event.request_id].append(event)  # type: ignore[union-attr]
