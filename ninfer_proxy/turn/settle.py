"""What is decided and kept of a turn: the explanation once the engine has answered, the record once it has finished. Knows store and planning; no wire format.

Order at the end of a turn: response, line, plan and outcome in one transaction; then the client is told; then what each
continuation is worth from now on is told to the engine.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from engine.api import FinishReason, Generate, Started
from ninfer_proxy.backends.base import Backend
from ninfer_proxy.compared import HeadText
from ninfer_proxy.errors import StoreUnavailable
from ninfer_proxy.habits import Seen
from ninfer_proxy.identity.canonical import digest, group_digest
from ninfer_proxy.metrics import Metrics
from ninfer_proxy.planning.explain import Facts, explain
from ninfer_proxy.planning.pins import renewed
from ninfer_proxy.planning.policy import Policy
from ninfer_proxy.prompt import Past, ReplayedOutput, assistant_message
from ninfer_proxy.store.records import (
    ConversationDraft,
    DropRecord,
    RecordedItem,
    TurnRecord,
)
from ninfer_proxy.store.store import Store
from ninfer_proxy.turn.ahead import Ahead
from ninfer_proxy.turn.facts import effort_of, facts_of, positions, weights_of, with_differences
from ninfer_proxy.turn.in_flight import InFlight
from ninfer_proxy.turn.observed import observed
from ninfer_proxy.turn.outcome import Outcome
from ninfer_proxy.turn.recognised import Recognised
from ninfer_proxy.turn.remembered import LastTurn, LastTurns
from ninfer_proxy.turn.request_log import RequestLog
from ninfer_proxy.turn.worth import Worth
from ninfer_proxy.types import (
    ConversationId,
    Decision,
    FunctionCallItem,
    Item,
    LineRole,
    ReasoningItem,
    ResponseId,
    TurnPlan,
)

log = logging.getLogger(__name__)

REMEMBERED_DROPS = 20


class Settler:
    """Shared by all turns. Remembers what the engine dropped until it is written down."""

    def __init__(
        self,
        store: Store,
        backend: Backend,
        policy: Policy,
        in_flight: InFlight,
        last_turns: LastTurns,
        metrics: Metrics,
        clock: Callable[[], float],
        request_log: RequestLog | None = None,
    ) -> None:
        self._store = store
        self._backend = backend
        self._policy = policy
        self._in_flight = in_flight
        self._last_turns = last_turns
        self.metrics = metrics
        self._clock = clock
        self._worth = Worth(backend, policy, clock)
        self._request_log = request_log
        self._ahead = Ahead(backend)
        self._unwritten: tuple[DropRecord, ...] = ()

    async def decide(
        self, recognised: Recognised, plan: TurnPlan, started: Started
    ) -> tuple[Decision, Seen]:
        """Why the engine starts where it does, and what the request shows of its client's habits."""
        await self.record_drops()
        last, drops = await self._store.last_turn(recognised.conversation, REMEMBERED_DROPS)
        facts = facts_of(
            recognised,
            last,
            drops,
            self._backend.status(),
        )
        match = recognised.match
        stored: Sequence[Item] = ()
        if match.compared_with is not None and match.divergence:
            stored = await self._store.line_items(match.compared_with)
        facts = await self._compared(recognised, started, facts, stored)
        return explain(match, plan, started, facts), observed(match, stored, recognised.items)

    async def _compared(
        self, recognised: Recognised, started: Started, facts: Facts, stored: Sequence[Item]
    ) -> Facts:
        """The facts with the first difference from the line's items `stored`, which are known where there is one."""
        match, line = recognised.match, recognised.line
        before: HeadText | None = None
        head_end = started.borders[min(facts.head_messages, len(started.borders) - 1)]
        in_question = (
            match.head_changed or recognised.steady.changes or started.matched_tokens < head_end
        )
        if in_question and line is not None and line.tip_response is not None:
            before = await self._store.head_text(line.tip_response)
        if recognised.steady.changes:
            slots = await self._store.slots()
            facts = replace(facts, checkpoints=positions(slots, recognised.conversation))
        return with_differences(facts, recognised, stored, before)

    async def commit(self, recognised: Recognised, plan: TurnPlan, outcome: Outcome) -> None:
        """Store the turn; on return it can be continued. Errors: StoreUnavailable, and then nothing is stored."""
        record = self._record(recognised, plan, outcome)
        await self._store.commit_turn(record)
        self._last_turns.keep(last_turn(recognised, record))
        self.metrics.turn_ended(outcome.decision, outcome.status, outcome.usage.output_tokens)
        self.metrics.items_taken_back(recognised.identity.family, sum(outcome.seen.values()))
        if self._request_log is not None:
            self._request_log.write(recognised, plan, outcome)

    async def look_ahead(self, recognised: Recognised, request: Generate, outcome: Outcome) -> None:
        """Have computed while nothing is asked for what the client's next request will begin with, if that is something else.

        For a main line whose user is to go on: in a tool loop the next request comes at once and has all of this one.
        """
        calls = any(isinstance(item, FunctionCallItem) for item in outcome.output)
        if outcome.status != "completed" or calls or recognised.match.role is not LineRole.MAIN:
            return
        said = ReplayedOutput(reasoning_text(outcome.output), outcome.finished.ledger)
        answer = assistant_message(outcome.output, said)
        # What this very turn has shown counts too.
        habits = await self._store.habits(request.tenant, recognised.identity.family)
        self._ahead.prepare(request, answer, habits)

    async def release(self, recognised: Recognised) -> None:
        """The turn is over, however it went: tell the engine what everything is worth now."""
        self._in_flight.end(recognised.conversation)
        try:
            slots = self._in_flight.slots(await self._store.slots())
        except StoreUnavailable as error:
            log.warning("the engine keeps what it was told of the slots' worth: %s", error.message)
            return
        self._worth.tell(slots)

    async def record_drops(self) -> None:
        """Write down what the engine has dropped since the last time. What can't be written is kept for the next.

        Errors: StoreUnavailable.
        """
        dropped, now = self._backend.dropped(), self._clock()
        for each in dropped:
            self.metrics.checkpoints_dropped(each.reason, len(each.checkpoints))
        new = tuple(DropRecord(now, each.reason, each.checkpoints) for each in dropped)
        writing, self._unwritten = (*self._unwritten, *new), ()
        if not writing:
            return
        try:
            await self._store.record_drops(writing)
        except StoreUnavailable:
            self._unwritten = (*writing, *self._unwritten)
            raise

    def _record(self, recognised: Recognised, plan: TurnPlan, outcome: Outcome) -> TurnRecord:
        turn, identity = recognised.turn, recognised.identity
        output = [RecordedItem(item, digest(item)) for item in outcome.output]
        counted = tuple(item.digest for item in output if item.digest is not None)
        # A client that breaks off drops the partial answer from its history.
        kept = () if outcome.finished.reason is FinishReason.CANCELLED else counted
        return TurnRecord(
            conversation=self._draft(recognised, plan, outcome),
            response=ResponseId(outcome.response),
            created_at=outcome.created_at,
            completed_at=outcome.completed_at,
            status=outcome.status,
            prompt=recorded_prompt(recognised),
            output=tuple(output),
            body=outcome.body,
            chain=identity.chain + kept,
            plan=plan,
            decision=outcome.decision,
            usage=outcome.usage,
            slot=plan.slot,
            engine_generation=self._backend.status().generation,
            model=turn.model,
            weights_id=weights_of(self._backend.status()),
            effort=effort_of(turn),
            previous_response=turn.previous_response_id,
            retrievable=turn.store,
            output_digest=group_digest(kept) if kept else None,
            ledger=outcome.finished.ledger if kept else None,
            reasoning=reasoning_text(outcome.output),
            pinned_until=renewed(plan.retention.pinned_until, self._clock(), self._policy),
            checkpoints=outcome.finished.checkpoints,
            seen=outcome.seen,
        )

    @staticmethod
    def _draft(recognised: Recognised, plan: TurnPlan, outcome: Outcome) -> ConversationDraft:
        identity, match = recognised.identity, recognised.match
        return ConversationDraft(
            id=recognised.conversation,
            tenant=recognised.turn.tenant,
            scope=identity.scope,
            role=match.role,
            family=identity.family,
            head=identity.head,
            continuation=plan.continuation,
            parent=match.parent,
            side_kind=match.side_kind,
            is_subagent=recognised.is_subagent,
            waiting_for_tool=any(isinstance(item, FunctionCallItem) for item in outcome.output),
            client=identity.family,
        )


def recorded_prompt(recognised: Recognised) -> tuple[RecordedItem, ...]:
    """The prompt's items as they were sent, with their digests; those of the head have none of their own."""
    identity, known = recognised.identity, recognised.known.items
    leading = recognised.steady.sent.leading
    items = (*leading, *recognised.items[len(leading) :])
    digests = (*(None for _ in range(identity.head_items)), *identity.digests)
    rest = zip(items[len(known) :], digests[len(known) :], strict=True)
    return (*known, *(RecordedItem(item, digest) for item, digest in rest))


def last_turn(recognised: Recognised, record: TurnRecord) -> LastTurn:
    """What the next turn will want to know of this one."""
    owners: tuple[ConversationId, ...] | None = recognised.owners
    if recognised.turn.previous_response_id is not None:
        owners = recognised.known.owners_with(recognised.owners)
    return LastTurn(
        tenant=recognised.turn.tenant,
        conversation=recognised.conversation,
        response=record.response,
        readable=record.retrievable,
        prompt=record.prompt,
        output=record.output,
        owners=owners,
        turns=recognised.turns,
        said=ReplayedOutput(record.reasoning, record.ledger) if record.output_digest else None,
        instructions=recognised.turn.instructions,
        past=Past(recognised.messages, recognised.message_counts, recognised.marked_borders),
    )


def reasoning_text(output: Sequence[Item]) -> str | None:
    """The reasoning of an output, None where there is none."""
    return "\n".join(item.text for item in output if isinstance(item, ReasoningItem)) or None
