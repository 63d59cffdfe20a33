"""What the scheduler tells beside work to do: sequences that can't go on, and counts. Decides nothing."""

from dataclasses import dataclass

from engine.planner.admission import Refusal
from engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Stuck:
    """A sequence that memory alone can't carry on: nothing else runs and the rest is pinned."""

    sequence: Sequence
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class Broken:
    """A sequence whose memory could not be handled. It is out of the queues, or leaves with the loop's answer."""

    sequence: Sequence
    error: Exception


@dataclass(slots=True)
class Counters:
    """Since start. Tokens, except where the name says otherwise; `followed` counts prompts that waited for another's prefix,
    `checkpoints_skipped` those that were not worth the room, `checkpoints_failed` those whose saving broke off.
    """

    prefilled_tokens: int = 0
    reused_tokens: int = 0
    generated_tokens: int = 0
    recomputed_tokens: int = 0
    steps: int = 0
    preemptions: int = 0
    checkpoints_saved: int = 0
    checkpoints_skipped: int = 0
    checkpoints_failed: int = 0
    followed: int = 0
