"""Which conversations have a turn running, and the new ones that aren't stored yet. In memory only: a turn that dies with the process was never promised to anybody.

Identity and planning see stored lines and slots through this, so that a second request of a conversation whose first
turn still runs finds that conversation instead of opening another.
"""

import asyncio
from collections.abc import Sequence
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


class InFlight:
    """Mutable; one for each app. Call `begin` when a turn is planned and `end` once when it is over."""

    def __init__(self) -> None:
        self._running: dict[ConversationId, _Running] = {}
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
        self._idle.clear()

    def end(self, conversation: ConversationId) -> None:
        running = self._running[conversation]
        running.turns -= 1
        if running.turns == 0:
            del self._running[conversation]
        if not self._running:
            self._idle.set()

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
            and (
                (scope and running.line.scope == scope)
                or (opening is not None and running.opening == opening)
            )
        ]
        return tuple(counted)

    def slots(self, stored: Sequence[SlotState]) -> tuple[SlotState, ...]:
        """The stored slots with their turns counted, each where its turn will leave it (a side request that became a main
        line is moving), and after them those of unstored conversations.
        """
        known = {slot.conversation for slot in stored}
        counted = [self._placed(slot) for slot in stored]
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
