"""Planned evictions carried out: the engine and the next decision know at once, the records follow. Knows no plan's reasons."""

import asyncio
import logging
from collections.abc import Sequence

from ninfer_proxy.backends.base import Backend
from ninfer_proxy.errors import StoreUnavailable
from ninfer_proxy.store.store import Store
from ninfer_proxy.turn.in_flight import InFlight
from ninfer_proxy.types import ConversationId, Eviction

log = logging.getLogger(__name__)


class Evictions:
    """Mutable; one for each app. A turn doesn't wait for the record of what it displaced; its own comes behind it."""

    def __init__(self, store: Store, backend: Backend, in_flight: InFlight) -> None:
        self._store = store
        self._backend = backend
        self._in_flight = in_flight
        self._recording: set[asyncio.Task[None]] = set()

    def carry_out(self, evictions: Sequence[Eviction]) -> None:
        """Returns at once, and the slots are free."""
        if not evictions:
            return
        for each in evictions:
            self._backend.drop(each.continuation, each.reason)
        gone = [each.conversation for each in evictions]
        self._in_flight.hide(gone)
        task = asyncio.create_task(self._record(gone))
        self._recording.add(task)
        task.add_done_callback(self._recording.discard)

    async def _record(self, gone: Sequence[ConversationId]) -> None:
        try:
            await self._store.release_slots(gone)
        except StoreUnavailable as error:
            log.warning("evicted slots are still recorded as held: %s", error.message)
        finally:
            self._in_flight.show(gone)
