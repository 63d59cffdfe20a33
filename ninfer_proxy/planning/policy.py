"""What whoever runs the proxy may choose about slots, pins and anchors. Values only."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """Times in seconds, sizes in tokens.

    `slots` caps the slots of main lines (None: only memory does). Side requests share `scratch_slots` slots beside them. A
    conversation counts as recently used for `recent_s` (30 minutes cover 98 % of measured think times), as waiting for
    its tool for `tool_wait_s`: 95 % of measured tools are back by then, and a loop that was left in the middle should outrank nobody
    for longer. A pin lasts `pin_s` if nobody says otherwise, and that long again after each use.
    `ladder_tokens` apart stand the checkpoints of a long prompt; `rewind_tokens` before a prompt's end, and before its
    head's, stands one for tails that get rewritten. Of older prompt ends the last `kept_prompt_ends` are worth keeping.
    A state is wanted before what a client has lately taken back in at least `transient_share` of the cases.
    """

    slots: int | None = None
    scratch_slots: int = 4
    recent_s: float = 1800.0
    tool_wait_s: float = 120.0
    pin_s: float = 3600.0
    ladder_tokens: int = 4_096
    rewind_tokens: int = 256
    kept_prompt_ends: int = 4
    transient_share: float = 0.25
