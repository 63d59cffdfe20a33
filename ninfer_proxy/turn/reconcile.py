"""What is done when an engine process is ready: the records say what it holds, and it learns what that is worth. Knows store and planning; starts nothing.

A newborn engine holds what its last life left on disk. Of that, whatever no conversation with a slot owns is given up.
"""

import logging
from collections.abc import Callable

from engine.api import Ready
from ninfer_proxy.backends.base import Backend
from ninfer_proxy.errors import StoreUnavailable
from ninfer_proxy.planning.eviction import retention
from ninfer_proxy.planning.losses import UNOWNED
from ninfer_proxy.planning.policy import Policy
from ninfer_proxy.store.store import Store
from ninfer_proxy.turn.in_flight import InFlight

log = logging.getLogger(__name__)

RESTARTED = "the engine was restarted"


class Reconciler:
    """Shared by all lives of the engine."""

    def __init__(
        self, store: Store, policy: Policy, in_flight: InFlight, clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._policy = policy
        self._in_flight = in_flight
        self._clock = clock

    async def engine_ready(self, backend: Backend, ready: Ready) -> None:
        """Records, then what the engine should forget, then what the rest is worth. A store in trouble is left as it is."""
        held = {each.continuation: each.checkpoints for each in ready.continuations}
        # What runs may be new, and not in the records yet.
        running = {slot.continuation for slot in self._in_flight.slots(())}
        try:
            found = await self._store.reconcile(held, RESTARTED)
            slots = self._in_flight.slots(await self._store.slots())
        except StoreUnavailable as error:
            log.warning("the records still tell what the last engine held: %s", error.message)
            return
        for continuation in found.unowned:
            if continuation not in running:
                backend.drop(continuation, UNOWNED)
        backend.set_retention(retention(slots, self._clock(), self._policy))
