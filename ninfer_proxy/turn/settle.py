"""What is decided and kept of a turn: the explanation once the engine has answered, the record once it has finished. Knows store and planning; no wire format.

Order at the end of a turn: response, line, plan and outcome in one transaction; then the client is told; then what each
continuation is worth from now on is told to the engine.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from engine.api import Finished, FinishReason, Message, Started
from ninfer_proxy.backends.base import Backend, BackendStatus
from ninfer_proxy.errors import StoreUnavailable
from ninfer_proxy.events import Usage
from ninfer_proxy.identity.canonical import digest, group_digest
from ninfer_proxy.identity.clients import side_hint
from ninfer_proxy.identity.difference import describe
from ninfer_proxy.metrics import Metrics
from ninfer_proxy.planning.eviction import retention
from ninfer_proxy.planning.explain import Drop, Facts, explain
from ninfer_proxy.planning.pins import renewed
from ninfer_proxy.planning.policy import Policy
from ninfer_proxy.prompt import (
    NO_PAST,
    AssistantGroup,
    Past,
    ReplayedOutput,
    build_messages,
    marked_borders,
    message_counts,
)
from ninfer_proxy.store.records import (
    ConversationDraft,
    DropRecord,
    RecordedItem,
    StoredDrop,
    StoredResponse,
    TurnRecord,
)
from ninfer_proxy.store.store import Store
from ninfer_proxy.turn.in_flight import InFlight
from ninfer_proxy.turn.remembered import LastTurn, LastTurns
from ninfer_proxy.types import (
    ConversationId,
    Decision,
    FunctionCallItem,
    Identity,
    Item,
    Match,
    ReasoningItem,
    ResponseId,
    StoredLine,
    Turn,
    TurnPlan,
)

log = logging.getLogger(__name__)

REMEMBERED_DROPS = 20


@dataclass(frozen=True)  # with room for what is worked out once and kept
class Recognised:
    """A turn and whose it is. `items` is the whole history, the first of which are `known`, `turns` the assistant turns in it;
    `line` the stored line it was compared with; `owners` the conversations whose ids came back. `past` is what is known of the
    prompt.
    """

    turn: Turn
    items: tuple[Item, ...]
    identity: Identity
    match: Match
    conversation: ConversationId
    line: StoredLine | None
    is_subagent: bool
    turns: Mapping[AssistantGroup, ReplayedOutput | None]
    owners: tuple[ConversationId, ...] = ()
    known: tuple[RecordedItem, ...] = ()
    past: Past = NO_PAST

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """Those of the prompt."""
        return build_messages(self.turn, self.items, self.turns, self.past)

    @cached_property
    def message_counts(self) -> tuple[int, ...]:
        """`[k]`: how many of the prompt's messages lie wholly within the first k items."""
        return message_counts(self.turn, self.items, self.turns, self.past)

    @cached_property
    def marked_borders(self) -> tuple[int, ...]:
        """Borders that the client marked, counted in messages."""
        return marked_borders(self.items, self.message_counts, self.past)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a turn ended. Times are Unix seconds."""

    response: str
    created_at: float
    completed_at: float
    status: str
    output: tuple[Item, ...]
    usage: Usage
    decision: Decision
    body: Mapping[str, Any]
    finished: Finished


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
    ) -> None:
        self._store = store
        self._backend = backend
        self._policy = policy
        self._in_flight = in_flight
        self._last_turns = last_turns
        self.metrics = metrics
        self._clock = clock
        self._unwritten: tuple[DropRecord, ...] = ()

    async def decide(self, recognised: Recognised, plan: TurnPlan, started: Started) -> Decision:
        """Why the engine starts where it does."""
        await self.record_drops()
        last, drops = await self._store.last_turn(recognised.conversation, REMEMBERED_DROPS)
        facts = facts_of(
            recognised,
            last,
            drops,
            self._backend.status(),
            await self._difference(recognised),
        )
        return explain(recognised.match, plan, started, facts)

    async def _difference(self, recognised: Recognised) -> str | None:
        """The first difference from the stored line in words; looked up only where there is one."""
        match, turn = recognised.match, recognised.turn
        if match.compared_with is None or not (match.divergence or match.head_changed):
            return None
        stored = await self._store.line_items(match.compared_with)
        before: str | None = None
        if match.head_changed and recognised.line and recognised.line.tip_response:
            body = await self._store.get_response(turn.tenant, recognised.line.tip_response)
            before = body.get("instructions") if body else None
        return describe(
            stored,
            recognised.items,
            match,
            stored_instructions=before,
            instructions=turn.instructions if before is not None else None,
        )

    async def commit(self, recognised: Recognised, plan: TurnPlan, outcome: Outcome) -> None:
        """Store the turn; on return it can be continued. Errors: StoreUnavailable, and then nothing is stored."""
        record = self._record(recognised, plan, outcome)
        await self._store.commit_turn(record)
        self._last_turns.keep(last_turn(recognised, record))
        self.metrics.turn_ended(outcome.decision, outcome.status, outcome.usage.output_tokens)

    async def release(self, recognised: Recognised) -> None:
        """The turn is over, however it went: tell the engine what everything is worth now."""
        self._in_flight.end(recognised.conversation)
        try:
            slots = self._in_flight.slots(await self._store.slots())
        except StoreUnavailable as error:
            log.warning("the engine keeps what it was told of the slots' worth: %s", error.message)
            return
        self._backend.set_retention(retention(slots, self._clock(), self._policy))

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


def facts_of(
    recognised: Recognised,
    last: StoredResponse | None,
    drops: Sequence[StoredDrop],
    status: BackendStatus,
    difference: str | None,
) -> Facts:
    """What planning needs to explain a turn, counted in messages of its prompt."""
    turn, match, line = recognised.turn, recognised.match, recognised.line
    counts = recognised.message_counts
    diverged = match.divergence.item_index if match.divergence else None
    return Facts(
        known_messages=counts[match.known_items],
        head_messages=counts[recognised.identity.head_items],
        shared_messages=None if diverged is None else counts[diverged],
        engine_restarted=last is not None and last.engine_generation != status.generation,
        model_changed=last is not None and last.weights_id not in (None, weights_of(status)),
        effort_changed=last is not None and last.effort != effort_of(turn),
        older_parent=turn.previous_response_id is not None
        and line is not None
        and line.tip_response != turn.previous_response_id,
        drops=tuple(
            Drop(checkpoint.position, checkpoint.tier, drop.reason)
            for drop in drops
            for checkpoint in drop.checkpoints
        ),
        difference=difference,
        hint=side_hint(match.side_kind) if match.side_kind else "",
    )


def weights_of(status: BackendStatus) -> str | None:
    """The weights that the engine has loaded; None until it has said so."""
    return status.ready.weights_id if status.ready else None


def effort_of(turn: Turn) -> str | None:
    """The reasoning setting as it is recorded: switched off is an effort too, and so is leaving earlier reasoning out."""
    effort = "none" if turn.thinking is False else turn.effort
    if turn.preserve_thinking:
        return effort
    return f"{effort or 'default'}, earlier reasoning left out"


def recorded_prompt(recognised: Recognised) -> tuple[RecordedItem, ...]:
    """The prompt's items with their digests; those of the head have none of their own."""
    identity, known = recognised.identity, recognised.known[: len(recognised.items)]
    digests = (*(None for _ in range(identity.head_items)), *identity.digests)
    rest = zip(recognised.items[len(known) :], digests[len(known) :], strict=True)
    return (*known, *(RecordedItem(item, digest) for item, digest in rest))


def last_turn(recognised: Recognised, record: TurnRecord) -> LastTurn:
    """What the next turn will want to know of this one."""
    return LastTurn(
        tenant=recognised.turn.tenant,
        conversation=recognised.conversation,
        response=record.response,
        prompt=record.prompt,
        output=record.output,
        owners=recognised.owners,
        turns=recognised.turns,
        instructions=recognised.turn.instructions,
        past=Past(recognised.messages, recognised.message_counts, recognised.marked_borders),
    )


def reasoning_text(output: Sequence[Item]) -> str | None:
    """The reasoning of an output, None where there is none."""
    return "\n".join(item.text for item in output if isinstance(item, ReasoningItem)) or None
