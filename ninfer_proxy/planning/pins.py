"""Pins: leases by which a conversation keeps its slot. Knows when they end; who is pinned is kept elsewhere."""

from ninfer_proxy.planning.policy import Policy
from ninfer_proxy.types import SlotState


def granted(now: float, policy: Policy, seconds: float | None = None) -> float:
    """When a pin that is granted now ends (Unix seconds); after the policy's lease where no time is asked for."""
    return now + (policy.pin_s if seconds is None else seconds)


def renewed(pinned_until: float | None, now: float, policy: Policy) -> float | None:
    """The end of a pin after its conversation was used: never sooner, and at least a whole lease away. None: not pinned."""
    if pinned_until is None or pinned_until <= now:
        return None
    return max(pinned_until, granted(now, policy))


def is_pinned(slot: SlotState, now: float) -> bool:
    return slot.pinned_until is not None and slot.pinned_until > now
