"""Which conversations have a turn running, and the new ones that aren't stored yet. In memory only: a turn that dies with the process was never promised to anybody.

Identity and planning see stored lines and slots through this, so that a second request of a conversation whose first
turn still runs finds that conversation instead of opening another. No lock is needed: a decision reads first, learns here whether
anything that matters began or ended meanwhile, and from its last look to its own beginning nothing is awaited.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ninfer_proxy.types import (
    ConversationId,
    ItemDigest,
    SlotState,
    StoredLine,
    TenantKey,
)


@dataclass(slots=True)
class _Running:
    """One conversation with `turns` running. `line`, `slot` and `opening` stand in until the store has it."""

    tenant: TenantKey
    opening: ItemDigest | None
    line: StoredLine
    slot: SlotState
    turns: int = 0

    def may_be_meant(self, scope: str, opening: ItemDigest | None) -> bool:
        """Whether a request of this scope and opening may belong to it."""
        return bool(scope and self.line.scope == scope) or (
            opening is not None and self.opening == opening
        )


class Moves:
    """Turns of one tenant that began or ended while a decision read."""

    def __init__(self, tenant: TenantKey) -> None:
        self._tenant = tenant
        self._moved: list[_Running] = []

    def note(self, running: _Running) -> None:
        if running.tenant == self._tenant:
            self._moved.append(running)

    def concern(
        self, scope: str, opening: ItemDigest | None, named: Collection[ConversationId]
    ) -> bool:
        """Whether any of them may change what a request of this scope and opening, or of these conversations, is taken for."""
        return any(
            each.may_be_meant(scope, opening) or each.line.conversation in named
            for each in self._moved
        )


class InFlight:
    """Mutable; one for each app. Call `begin` when a turn is planned and `end` once when it is over."""

    def __init__(self) -> None:
        self._running: dict[ConversationId, _Running] = {}
        self._watched: list[Moves] = []
        self._hidden: Counter[ConversationId] = Counter()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def turns(self) -> int:
        return sum(running.turns for running in self._running.values())

    async def idle(self) -> None:
        """Returns when no turn runs."""
        await self._idle.wait()

    def begin(
        self, tenant: TenantKey, opening: ItemDigest | None, line: StoredLine, slot: SlotState
    ) -> None:
        running = self._running.setdefault(line.conversation, _Running(tenant, opening, line, slot))
        running.slot = slot
        running.turns += 1
        self._tell(running)
        self._idle.clear()

    def end(self, conversation: ConversationId) -> None:
        running = self._running[conversation]
        running.turns -= 1
        self._tell(running)
        if running.turns == 0:
            del self._running[conversation]
        if not self._running:
            self._idle.set()

    @contextmanager
    def watch(self, tenant: TenantKey) -> Iterator[Moves]:
        """What begins and ends while the context is open."""
        moves = Moves(tenant)
        self._watched.append(moves)
        try:
            yield moves
        finally:
            self._watched.remove(moves)

    def _tell(self, running: _Running) -> None:
        for moves in self._watched:
            moves.note(running)

    def hide(self, conversations: Collection[ConversationId]) -> None:
        """Their slots have been given up, and the records don't say so yet."""
        self._hidden.update(conversations)

    def show(self, conversations: Collection[ConversationId]) -> None:
        """The records are right again."""
        self._hidden.subtract(conversations)
        self._hidden = +self._hidden

    def lines(
        self,
        stored: Sequence[StoredLine],
        tenant: TenantKey,
        scope: str,
        opening: ItemDigest | None,
    ) -> tuple[StoredLine, ...]:
        """The stored lines with their turns counted, and after them the unstored ones that a request may belong to."""
        counted = [self._counted(line) for line in stored]
        known = {line.conversation for line in stored}
        counted += [
            replace(running.line, in_flight=running.turns)
            for conversation, running in self._running.items()
            if conversation not in known
            and running.tenant == tenant
            and running.may_be_meant(scope, opening)
        ]
        return tuple(counted)

    def slots(self, stored: Sequence[SlotState]) -> tuple[SlotState, ...]:
        """The stored slots with their turns counted, each where its turn will leave it (a side request that became a main
        line is moving), and after them those of unstored conversations. Hidden ones are left out unless they run again.
        """
        shown = [slot for slot in stored if slot.conversation not in self._hidden]
        known = {slot.conversation for slot in shown}
        counted = [self._placed(slot) for slot in shown]
        counted += [
            replace(running.slot, in_flight=running.turns)
            for conversation, running in self._running.items()
            if conversation not in known
        ]
        return tuple(counted)

    def _placed(self, slot: SlotState) -> SlotState:
        running = self._running.get(slot.conversation)
        if running is None:
            return slot
        return replace(
            slot, slot=running.slot.slot, role=running.slot.role, in_flight=running.turns
        )

    def _counted(self, line: StoredLine) -> StoredLine:
        running = self._running.get(line.conversation)
        return replace(line, in_flight=running.turns) if running else line
