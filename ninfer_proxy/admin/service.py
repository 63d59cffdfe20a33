"""What an operator can see and do, over the store and the engine. Knows no HTTP; all tenants are in sight here.

A conversation is named by its id, or by the number of the slot it holds.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from engine.api import Snapshot
from ninfer_proxy.admin import views
from ninfer_proxy.admin.views import View
from ninfer_proxy.backends.base import Backend
from ninfer_proxy.errors import EngineUnavailable, InvalidRequest, NotFound
from ninfer_proxy.planning.eviction import retention_of, slot_class, victims
from ninfer_proxy.planning.losses import BY_OPERATOR, UNUSED
from ninfer_proxy.planning.pins import granted
from ninfer_proxy.planning.policy import Policy
from ninfer_proxy.store.store import Store
from ninfer_proxy.types import ConversationId, ResponseId, SlotState

SNAPSHOT_WAIT_S = 2.0
CHAT_PREFIX = "chatcmpl-"
"""Of the ids that chat completions have; behind it they are their responses'."""
LONGEST_PIN_S = 365 * 86_400.0


class Admin:
    """`in_flight` adds running turns, and conversations that aren't stored yet, to the stored slots (InFlight.slots)."""

    def __init__(
        self,
        store: Store,
        backend: Backend,
        policy: Policy,
        in_flight: Callable[[Sequence[SlotState]], tuple[SlotState, ...]],
        *,
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._backend = backend
        self._policy = policy
        self._in_flight = in_flight
        self._clock = clock

    async def slots(self) -> View:
        """Every slot, with the engine's own word on what it holds."""
        stored = {each.id: each for each in await self._store.slot_conversations()}
        now = self._clock()
        return {
            "slots": [
                views.slot_view(
                    state,
                    stored.get(state.conversation),
                    slot_class(state, now, self._policy),
                    now,
                )
                for state in await self._states()
            ]
        }

    async def show(self, name: str) -> View:
        """Errors: NotFound."""
        conversation = await self._named(name)
        detail = await self._store.show(conversation)
        if detail is None:
            raise NotFound(f"No conversation {name}. `ninfer-proxy slots` lists those with a slot.")
        slot = await self._slot_view(conversation)
        return views.show_view(detail, slot, self._clock())

    async def explain(self, response: str) -> View:
        """Also by the id that a chat completion has. Errors: NotFound."""
        name = response.replace(CHAT_PREFIX, "resp_", 1)
        stored = await self._store.explain(ResponseId(name))
        if stored is None:
            raise NotFound(f"No response {response}: unknown, or older than the retention.")
        return views.explain_view(stored)

    async def pin(self, name: str, minutes: float | None) -> View:
        """Keep a conversation's slot for so long from now. Returns its slot. Errors: NotFound, InvalidRequest."""
        seconds = None if minutes is None else minutes * 60
        if seconds is not None and not 0 < seconds <= LONGEST_PIN_S:
            raise InvalidRequest("minutes must be above 0 and at most a year.", param="minutes")
        return await self._set_pin(name, granted(self._clock(), self._policy, seconds))

    async def unpin(self, name: str) -> View:
        """Errors: NotFound."""
        return await self._set_pin(name, None)

    async def evict(self, name: str) -> View:
        """Drop a conversation's state and free its slot; what it said stays. Errors: NotFound, InvalidRequest while it runs."""
        conversation = (await self._state(name)).conversation
        view = await self._slot_view(conversation)
        state = _found(await self._recorded(), conversation)
        if state.in_flight:
            raise InvalidRequest(
                f"{conversation} is answering a request; evict it when that is done.",
                param="conversation",
            )
        await self._give_up([state], BY_OPERATOR)
        return {"evicted": view}

    async def release_unused(self, before: float) -> None:
        """Give up the slots last used before `before` (Unix seconds), so that a sweep may take their conversations. Those that
        run or are pinned stay.
        """
        free = victims(await self._recorded(), self._clock(), self._policy)
        await self._give_up([each for each in free if each.last_used_at < before], UNUSED)

    async def _give_up(self, states: Sequence[SlotState], reason: str) -> None:
        """States that `_recorded` just gave: what no turn used then is dropped before one can begin."""
        for state in states:
            self._backend.drop(state.continuation, reason)
        if states:
            await self._store.release_slots([state.conversation for state in states])

    async def status(self) -> View:
        snapshot = await self._snapshot()
        owners = {state.continuation: state.conversation for state in await self._recorded()}
        return views.status_view(self._backend.status(), snapshot, owners)

    async def _set_pin(self, name: str, until: float | None) -> View:
        state = await self._state(name)
        if await self._store.conversation(state.conversation) is None:
            raise InvalidRequest(
                f"{state.conversation} is in its first turn; pin it when that is done.",
                param="conversation",
            )
        await self._store.set_pin(state.conversation, until)
        pinned = replace(state, pinned_until=until)
        self._backend.set_retention([retention_of(pinned, self._clock(), self._policy)])
        view = await self._slot_view(state.conversation)
        assert view is not None, "it was there a moment ago"
        return view

    async def _slot_view(self, conversation: ConversationId) -> View | None:
        listed = (await self.slots())["slots"]
        return next((each for each in listed if each["conversation"] == conversation), None)

    async def _named(self, name: str) -> ConversationId:
        if not name.isdecimal():
            return ConversationId(name)
        return (await self._state(name)).conversation

    async def _state(self, name: str) -> SlotState:
        """The slot of that number, or of that conversation."""
        return _found(await self._states(), name)

    async def _recorded(self) -> tuple[SlotState, ...]:
        """True at the moment this returns, the turns in flight included."""
        states = self._in_flight(await self._store.slots())
        return tuple(sorted(states, key=lambda state: state.slot))

    async def _states(self) -> tuple[SlotState, ...]:
        """Recorded slots with the checkpoints that the engine has in truth; nothing is written, a turn may be ending."""
        recorded = await self._recorded()
        snapshot = await self._snapshot()
        if snapshot is None:
            return recorded
        held = {each.continuation: each for each in snapshot.continuations}
        return tuple(
            replace(
                state,
                checkpoints=true.checkpoints if true else (),
                tokens=max((each.position for each in true.checkpoints), default=0) if true else 0,
                bytes=true.bytes if true else 0,
            )
            for state in recorded
            for true in (held.get(state.continuation),)
        )

    async def _snapshot(self) -> Snapshot | None:
        """The engine's truth; None while it is away or too busy to say."""
        try:
            async with asyncio.timeout(SNAPSHOT_WAIT_S):
                return await self._backend.snapshot()
        except (EngineUnavailable, TimeoutError):
            return None


def _found(states: Sequence[SlotState], name: str) -> SlotState:
    """The slot of that number, or of that conversation. Errors: NotFound."""
    for state in states:
        if name in (str(state.slot), state.conversation):
            return state
    what = f"Slot {name} is empty." if name.isdecimal() else f"{name} holds no slot."
    raise NotFound(f"{what} `ninfer-proxy slots` lists the slots.")
