"""What the engine is told about each continuation's worth: only what it hasn't been told yet. Knows planning's rule, no store."""

from collections.abc import Callable, Sequence

from ninfer_proxy.backends.base import Backend
from ninfer_proxy.planning.eviction import retention_of, slot_class
from ninfer_proxy.planning.policy import Policy
from ninfer_proxy.types import ContinuationId, Retention, SlotClass, SlotState


class Worth:
    """Mutable; one for each app. What a conversation is worth changes with its turns and its class, so a turn changes little of
    what thousands of slots are worth.
    """

    def __init__(self, backend: Backend, policy: Policy, clock: Callable[[], float]) -> None:
        self._backend = backend
        self._policy = policy
        self._clock = clock
        self._told: dict[ContinuationId, tuple[SlotState, SlotClass, Retention]] = {}
        self._generation = 0

    def tell(self, slots: Sequence[SlotState]) -> None:
        """Tell what is new about them; to a new engine process everything."""
        generation = self._backend.status().generation
        before = self._told if generation == self._generation else {}
        self._generation = generation
        told: dict[ContinuationId, tuple[SlotState, SlotClass, Retention]] = {}
        changed: list[Retention] = []
        now = self._clock()
        for slot in slots:
            kind = slot_class(slot, now, self._policy)
            last = before.get(slot.continuation)
            if last is None or last[0] is not slot or last[1] is not kind:
                last = slot, kind, retention_of(slot, now, self._policy)
                changed.append(last[2])
            told[slot.continuation] = last
        self._told = told
        self._backend.set_retention(changed)
