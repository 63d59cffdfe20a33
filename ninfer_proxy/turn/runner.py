"""The life of a request, from a Turn to a stored response: the boxes of the architecture called in order. Knows no wire format.

expand     previous_response_id and item references → whole history     store
recognise  whose turn is this                                           identity
plan       which slot, which anchors, what to evict                     planning
run        prompt → events                                              backend
settle     explain, store, and only then tell the client                planning, store   (running, settle)
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.api import Generate, Prompt, RequestId
from ninfer_proxy.backends.base import Backend
from ninfer_proxy.compared import Unsteady
from ninfer_proxy.identity.resolve import identify, resolve
from ninfer_proxy.identity.stabilise import stabilise
from ninfer_proxy.metrics import Metrics
from ninfer_proxy.planning.plan import plan_turn
from ninfer_proxy.planning.policy import Policy
from ninfer_proxy.prompt import layout, prompt_of
from ninfer_proxy.store.records import ItemPage
from ninfer_proxy.store.store import Store
from ninfer_proxy.turn.evictions import Evictions
from ninfer_proxy.turn.health import health
from ninfer_proxy.turn.history import History, expand
from ninfer_proxy.turn.in_flight import InFlight
from ninfer_proxy.turn.recognised import Recognised
from ninfer_proxy.turn.remembered import Known, LastTurns
from ninfer_proxy.turn.replay import assistant_turns
from ninfer_proxy.turn.request_log import RequestLog
from ninfer_proxy.turn.running import RunningTurn
from ninfer_proxy.turn.settle import Settler
from ninfer_proxy.types import (
    ContinuationId,
    ConversationId,
    FunctionCallItem,
    Identity,
    Item,
    ItemDigest,
    LineRole,
    ModelInfo,
    ResponseId,
    SlotState,
    StoredLine,
    TenantKey,
    Turn,
    TurnPlan,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TurnSettings:
    """`thinking` is what a request that doesn't say gets. `decide_wait_s` is how long the start of a stream waits for the
    engine's answer, so that its headers tell the decision and a refusal has its status; `silence_s` the silence that is too
    long for a healthy engine. What is of the kinds `stabilise` is changed in heads before the engine sees them.
    """

    policy: Policy
    served_model: str
    thinking: bool
    decide_wait_s: float
    silence_s: float = 60.0
    stabilise: Collection[Unsteady] = ()


class TurnRunner:
    """Accepts turns. Holds what all of them share; each turn's own state is in its RunningTurn."""

    def __init__(
        self,
        store: Store,
        backend: Backend,
        settings: TurnSettings,
        metrics: Metrics,
        in_flight: InFlight,
        *,
        clock: Callable[[], float],
        new_id: Callable[[str], str],
        request_log: RequestLog | None = None,
    ) -> None:
        self._store = store
        self._backend = backend
        self._settings = settings
        self._clock = clock
        self._new_id = new_id
        self._in_flight = in_flight
        self._evictions = Evictions(store, backend, in_flight)
        self._last_turns = LastTurns()
        self._settler = Settler(
            store,
            backend,
            settings.policy,
            in_flight,
            self._last_turns,
            metrics,
            clock,
            request_log,
        )

    async def begin(self, turn: Turn) -> RunningTurn:
        """Decide and start. Errors: ProxyError, and then nothing is left running."""
        history = await expand(self._store, self._last_turns, turn)
        recognised, slots = await self._look(turn, history)
        # Nothing is awaited from here until the turn counts as running: two first requests of one conversation must not both
        # open it, and nobody gives up a slot that a turn is being planned for.
        plan, prompt = self._plan(recognised, slots)
        self._evictions.carry_out(plan.evictions)
        running = self._start(turn, recognised, plan, prompt)
        await running.wait_decided(self._settings.decide_wait_s)
        return running

    async def recognise(self, turn: Turn) -> Recognised:
        """Whose turn it is, as things stand. Nothing is stored, planned or moved. Errors: as `begin`."""
        history = await expand(self._store, self._last_turns, turn)
        return await self._recognise(turn, history, await self._owners(turn, history.known))

    async def count_tokens(self, turn: Turn) -> int:
        """Tokens of the turn's prompt, likewise."""
        return await self._backend.count_tokens(self._prompt(await self.recognise(turn)))

    async def _look(self, turn: Turn, history: History) -> tuple[Recognised, tuple[SlotState, ...]]:
        """Whose turn this is, and the slots; both true at the moment this returns. Reads again when a turn that matters
        began or ended meanwhile.
        """
        owners = await self._owners(turn, history.known)
        while True:
            with self._in_flight.watch(turn.tenant) as moves:
                recognised = await self._recognise(turn, history, owners)
                slots = await self._store.slots()
            identity = recognised.identity
            if not moves.concern(identity.scope, opening_of(identity), named(history, owners)):
                return recognised, self._in_flight.slots(slots)

    async def _owners(self, turn: Turn, known: Known) -> Sequence[ConversationId]:
        """Conversations in which we gave out ids that come back in the request."""
        sent, before = turn.items, known.owners
        if turn.previous_response_id is not None or before is None:
            before = ()
        else:
            sent = sent[known.prompt_items :]
        ids = minted_ids(sent)
        minted = await self._store.minted(turn.tenant, ids) if ids else {}
        return tuple(dict.fromkeys((*before, *minted.values())))

    async def _recognise(
        self, turn: Turn, history: History, owners: Sequence[ConversationId]
    ) -> Recognised:
        known, kinds = history.known, self._settings.stabilise
        steady = stabilise(turn, history.items, kinds)
        identity = identify(steady.turn, steady.items, [each.digest for each in known.items])
        lines = await self._lines(turn, identity, history, owners)
        match = resolve(steady.turn, identity, lines, _line_of(lines, history.parent), owners)
        return Recognised(
            sent=turn,
            steady=steady,
            kinds=kinds,
            identity=identity,
            match=match,
            conversation=match.conversation or ConversationId(self._new_id("conv")),
            line=_line_of(lines, match.compared_with or match.conversation),
            owners=tuple(owners),
            parent=history.parent,
            known=known,
            habits=await self._store.habits(turn.tenant, identity.family),
            # A side request or a fork often carries another line's history, so that line is asked too.
            turns=await assistant_turns(
                self._store,
                steady.items,
                identity,
                (match.compared_with, match.parent, match.conversation),
                known,
            ),
        )

    async def _lines(
        self,
        turn: Turn,
        identity: Identity,
        history: History,
        owners: Sequence[ConversationId],
    ) -> tuple[StoredLine, ...]:
        """The lines this turn may belong to, the running ones included."""
        opening = opening_of(identity)
        stored = await self._store.find_lines(
            turn.tenant, identity.scope, opening, named(history, owners)
        )
        return self._in_flight.lines(stored, turn.tenant, identity.scope, opening)

    def _plan(self, recognised: Recognised, slots: Sequence[SlotState]) -> tuple[TurnPlan, Prompt]:
        prompt = self._prompt(recognised)
        counts = recognised.message_counts
        diverged = recognised.match.divergence
        branch = None if diverged is None else diverged.item_index
        plan = plan_turn(
            recognised.match,
            slots,
            recognised.conversation,
            layout(prompt, recognised.marked_borders),
            self._settings.policy,
            self._clock(),
            branch=None if branch is None else counts[branch],
            habits=recognised.habits,
        )
        return plan, prompt

    def _prompt(self, recognised: Recognised) -> Prompt:
        return prompt_of(recognised.turn, recognised.messages, thinking=self._settings.thinking)

    def _start(
        self, turn: Turn, recognised: Recognised, plan: TurnPlan, prompt: Prompt
    ) -> RunningTurn:
        response = ResponseId(self._new_id("resp"))
        self._in_flight.begin(
            turn.tenant,
            opening_of(recognised.identity),
            opening_line(recognised, self._clock()),
            opening_slot(recognised, plan, self._clock()),
        )
        request = Generate(
            request_id=RequestId(response),
            tenant=turn.tenant,
            continuation=plan.continuation,
            prompt=prompt,
            retention=plan.retention,
            sampling=turn.sampling,
            stop=turn.stop,
            max_tokens=turn.max_output_tokens,
            anchors=plan.anchors,
            ladder_tokens=plan.ladder_tokens,
            allow_tools=turn.tool_choice != "none",
        )
        return RunningTurn(
            recognised, plan, request, self._backend, self._settler, self._new_id, self._clock
        )

    # --- stored responses ----------------------------------------------------------------------

    async def get_response(self, tenant: TenantKey, response_id: str) -> Mapping[str, Any] | None:
        return await self._store.get_response(tenant, ResponseId(response_id))

    async def delete_response(self, tenant: TenantKey, response_id: str) -> bool:
        deleted = await self._store.delete_response(tenant, ResponseId(response_id))
        self.forget()
        return deleted

    def forget(self) -> None:
        """Remember nothing of earlier turns but what is stored. For upkeep: what nobody uses doesn't stay in memory for ever."""
        self._last_turns.forget()

    async def input_items(
        self, tenant: TenantKey, response_id: str, after: str | None, limit: int, order: str
    ) -> ItemPage | None:
        return await self._store.input_items(tenant, ResponseId(response_id), after, limit, order)

    async def record_drops(self) -> None:
        """Write down what the engine has dropped. For upkeep; turns do so as well."""
        await self._settler.record_drops()

    # --- the service ---------------------------------------------------------------------------

    async def idle(self) -> None:
        """Returns when no turn runs."""
        await self._in_flight.idle()

    async def health(self) -> Mapping[str, Any]:
        """As `turn.health`, with the model's name and how many turns run."""
        return {
            "model": self._settings.served_model,
            "turns_in_flight": self._in_flight.turns,
            **await health(self._store, self._backend, self._settings.silence_s),
        }

    def model(self) -> ModelInfo:
        ready = self._backend.status().ready
        return ModelInfo(self._settings.served_model, ready.context_tokens if ready else None)


def opening_of(identity: Identity) -> ItemDigest | None:
    """The digest of its first item that counts."""
    return next(iter(identity.chain), None)


def named(history: History, owners: Sequence[ConversationId]) -> set[ConversationId]:
    """Conversations that a request names, by a response or by ids."""
    return {*owners} if history.parent is None else {*owners, history.parent}


def _line_of(lines: Sequence[StoredLine], wanted: ConversationId | None) -> StoredLine | None:
    return next((line for line in lines if line.conversation == wanted), None)


def minted_ids(items: Sequence[Item]) -> set[str]:
    """Ids in a request that may be ones we gave out: of calls, and of items sent back whole."""
    ids = {str(item.raw["id"]) for item in items if item.raw.get("id")}
    return ids | {item.call_id for item in items if isinstance(item, FunctionCallItem)}


def opening_line(recognised: Recognised, now: float) -> StoredLine:
    """A conversation as identity sees it while its first turn runs."""
    identity, match = recognised.identity, recognised.match
    return StoredLine(
        conversation=recognised.conversation,
        scope=identity.scope,
        role=match.role,
        family=identity.family,
        head=identity.head,
        chain=identity.chain,
        tip_response=None,
        last_used_at=now,
        parent=match.parent,
    )


def opening_slot(recognised: Recognised, plan: TurnPlan, now: float) -> SlotState:
    """Its slot, likewise."""
    return SlotState(
        slot=plan.slot,
        conversation=recognised.conversation,
        continuation=ContinuationId(plan.continuation),
        role=LineRole(plan.role),
        last_used_at=now,
        is_subagent=recognised.is_subagent,
    )
