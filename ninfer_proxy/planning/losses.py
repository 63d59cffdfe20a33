"""Why state ceases to exist, and what would have kept it. Knows the words the engine and the proxy give as reasons."""

from ninfer_proxy.types import LineRole
from ninfer_proxy.wording import agreeing, counted

MEMORY = "memory"
"""The engine needed the room."""
SUPERSEDED = "superseded"
"""The engine made a later state of the same sequence, from which as much can be reused."""
DISK_LIMIT = "disk limit"
"""The engine needed the room on disk for what is worth more."""
UNOWNED = "no conversation with a slot owns it"
"""What an engine held after a restart though its slot had been given up."""
BY_OPERATOR = "evicted by the operator"
UNUSED = "unused for the whole retention"

_NO_SLOT = {
    LineRole.MAIN: ("slots", "main line"),
    LineRole.SIDE: ("scratch slots", "side request"),
}


def no_slot(role: LineRole, limit: int) -> str:
    """The reason where no more than `limit` lines of that role hold a slot."""
    setting, lines = _NO_SLOT[role]
    return f"{setting}: {counted(limit, lines)} {agreeing(limit, 'is', 'are')} kept"


def remedy(reason: str) -> str:
    """What would have kept state that was dropped for `reason`; '' where nothing is to be advised."""
    if reason == MEMORY:
        return "More memory for state, fewer conversations or a pin would have kept it."
    if reason == DISK_LIMIT:
        return "A larger engine.disk_bytes or a pin would have kept it."
    if reason.startswith(tuple(f"{setting}: " for setting, _ in _NO_SLOT.values())):
        return "More slots or a pin would have kept it."
    return ""
