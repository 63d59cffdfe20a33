"""This proxy: its own identity and planning at work, over a simulated engine. Keeps the books that the store keeps otherwise.

With a number of slots memory is taken to be short all the time: what planning calls expendable is dropped at the end of each turn.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from engine.api import AnchorKind, ContinuationId
from engine.sequence import wanted_positions
from ninfer_proxy.identity.resolve import resolve
from ninfer_proxy.planning.eviction import expendable, retention
from ninfer_proxy.planning.plan import plan_turn
from ninfer_proxy.planning.policy import Policy
from ninfer_proxy.simulate.budget import Budget
from ninfer_proxy.simulate.cost import Cost
from ninfer_proxy.simulate.policy import Begun
from ninfer_proxy.simulate.request import Request
from ninfer_proxy.simulate.shelf import Shelf
from ninfer_proxy.types import (
    ConversationId,
    LineRole,
    Match,
    SlotState,
    StoredLine,
    TenantKey,
    TurnPlan,
)


@dataclass(slots=True)
class _Record:
    """What is known of a conversation. `slot` None: it holds none."""

    tenant: TenantKey
    line: StoredLine
    slot: int | None
    in_flight: int = 0
    waiting_for_tool: bool = False
    is_subagent: bool = False

    @property
    def continuation(self) -> ContinuationId:
        return ContinuationId(self.line.conversation)


class Ours:
    """Mutable."""

    name = "ours"
    about = "this proxy: conversations, anchors, retention"

    def __init__(self, budget: Budget, cost: Cost, policy: Policy | None = None) -> None:
        self._policy = replace(policy or Policy(), slots=budget.slots)
        self._shelf = Shelf(budget.bytes, cost)
        self._is_always_short = budget.bytes is None
        self._records: dict[ConversationId, _Record] = {}
        self._known_as: dict[str, ConversationId] = {}
        self._matches: dict[Request, tuple[Match, ConversationId]] = {}

    def begin(self, request: Request) -> Begun:
        now = request.begins
        match = self._resolve(request)
        conversation = match.conversation or ConversationId(f"conv_{len(self._records)}")
        plan = self._plan(request, match, conversation, now)
        for eviction in plan.evictions:
            self._records[eviction.conversation].slot = None
            self._shelf.drop(eviction.continuation)
        self._open(request, match, plan)
        reused = self._shelf.resume_at(request.line)
        self._save_anchors(request, plan, reused)
        self._shelf.retain(plan.retention)
        self._shelf.hold(request.whole)
        bare = self._shelf.make_room(now)
        return Begun(
            reused,
            plan.slot,
            tuple(eviction.slot for eviction in plan.evictions),
            len(plan.evictions) + bare,
        )

    def end(self, request: Request) -> int:
        match, conversation = self._matches.pop(request)
        record = self._records[conversation]
        now = request.ends
        record.in_flight -= 1
        record.waiting_for_tool = request.calls_tools
        record.is_subagent = request.identity.is_subagent
        identity = request.identity
        record.line = replace(
            record.line,
            scope=identity.scope or record.line.scope,
            role=match.role,
            family=identity.family,
            head=identity.head,
            chain=identity.chain + request.output,
            last_used_at=now,
            side_kind=match.side_kind,
        )
        if request.whole is not request.line:
            self._shelf.save(request.whole, record.continuation, AnchorKind.TIP)
        self._shelf.release(request.whole)
        if self._is_always_short:
            self._shelf.drop(
                record.continuation, expendable(self._slot_state(record), self._policy)
            )
            return 0
        for each in retention(tuple(self._slots()), now, self._policy):
            self._shelf.retain(each)
        return self._shelf.make_room(now)

    def _resolve(self, request: Request) -> Match:
        owners = [self._known_as[name] for name in request.named if name in self._known_as]
        parent = self._known_as.get(request.parent) if request.parent else None
        lines = self._lines(request, {*owners, *([parent] if parent else [])})
        above = next((line for line in lines if line.conversation == parent), None)
        return resolve(request.turn, request.identity, lines, above, owners)

    def _lines(self, request: Request, named: set[ConversationId]) -> list[StoredLine]:
        """Those that a request may belong to, as the store finds them; newest first."""
        scope, opening = request.identity.scope, request.identity.chain[:1]
        found = [
            replace(record.line, in_flight=record.in_flight)
            for record in self._records.values()
            if record.tenant == request.turn.tenant
            and (
                (scope and record.line.scope == scope)
                or (opening and record.line.chain[:1] == opening)
                or record.line.conversation in named
            )
        ]
        return sorted(found, key=lambda line: line.last_used_at, reverse=True)

    def _plan(
        self, request: Request, match: Match, conversation: ConversationId, now: float
    ) -> TurnPlan:
        at = None if match.divergence is None else match.divergence.item_index
        return plan_turn(
            match,
            tuple(self._slots()),
            conversation,
            request.layout,
            self._policy,
            now,
            branch=None if at is None else request.counts[at],
        )

    def _slots(self) -> Iterator[SlotState]:
        return (
            self._slot_state(record) for record in self._records.values() if record.slot is not None
        )

    def _slot_state(self, record: _Record) -> SlotState:
        assert record.slot is not None
        checkpoints = self._shelf.checkpoints(record.continuation)
        return SlotState(
            slot=record.slot,
            conversation=record.line.conversation,
            continuation=record.continuation,
            role=record.line.role,
            last_used_at=record.line.last_used_at,
            in_flight=record.in_flight,
            waiting_for_tool=record.waiting_for_tool,
            is_subagent=record.is_subagent,
            checkpoints=checkpoints,
            tokens=max((each.position for each in checkpoints), default=0),
        )

    def _open(self, request: Request, match: Match, plan: TurnPlan) -> None:
        """The conversation as it is while the turn runs."""
        identity = request.identity
        record = self._records.get(plan.conversation)
        if record is None:
            line = StoredLine(
                conversation=plan.conversation,
                scope=identity.scope,
                role=match.role,
                family=identity.family,
                head=identity.head,
                chain=identity.chain,
                tip_response=None,
                last_used_at=request.begins,
                parent=match.parent,
            )
            record = _Record(request.turn.tenant, line, plan.slot)
            record.is_subagent = identity.is_subagent
            self._records[plan.conversation] = record
        record.slot = plan.slot
        record.line = replace(record.line, role=LineRole(plan.role))
        record.in_flight += 1
        self._known_as[request.conversation] = plan.conversation
        self._matches[request] = (match, plan.conversation)

    def _save_anchors(self, request: Request, plan: TurnPlan, reused: int) -> None:
        """The engine saves a wanted checkpoint when it comes by there; what stands before that is adopted."""
        wanted = wanted_positions(
            plan.anchors, plan.ladder_tokens, request.borders, request.prompt_tokens
        )
        for position, kind in wanted:
            at = request.line.cut(position)
            if position > reused or self._shelf.stands(at):
                self._shelf.save(at, plan.continuation, kind)
