"""Why state ceases to exist, and what would have kept it. Knows the words the engine and the proxy give as reasons."""

MEMORY = "memory"
"""The engine needed the room."""
SUPERSEDED = "superseded"
"""The engine made a later state of the same sequence, from which as much can be reused."""
BY_OPERATOR = "evicted by the operator"
UNUSED = "unused for the whole retention"

NO_MAIN_SLOT = "slots: {} main lines are kept"
NO_SCRATCH_SLOT = "scratch slots: {} side requests are kept"


def remedy(reason: str) -> str:
    """What would have kept state that was dropped for `reason`; '' where nothing is to be advised."""
    if reason == MEMORY:
        return "More memory for state, fewer conversations or a pin would have kept it."
    if reason.startswith((NO_MAIN_SLOT.partition("{")[0], NO_SCRATCH_SLOT.partition("{")[0])):
        return "More slots or a pin would have kept it."
    return ""
