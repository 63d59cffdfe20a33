"""May this request run now, from where, or never? A pure answer from numbers: no search, no clock, no way to run out of time."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.api import RejectCode, ResumeReason, Tier

NEAREST = (Tier.DEVICE, Tier.HOST, Tier.DISK)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A checkpoint whose tokens are proved to be the beginning of the prompt. `key` is the cache's name for it."""

    key: int
    position: int
    tier: Tier


@dataclass(frozen=True, slots=True)
class Limits:
    """What no request may exceed, whatever else runs. Tokens; `device_cells` are pages."""

    context_tokens: int
    page_tokens: int
    device_cells: int
    max_waiting: int


@dataclass(frozen=True, slots=True)
class Pools:
    """The device now, in cells: `committed` are held by running sequences or still needed by their prompts, `immovable` are pinned
    and have no place on the host. All else can be had.
    """

    lanes: int
    cells: int
    committed: int
    immovable: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """Becomes api.Rejected. `needed` and `available` are tokens."""

    code: RejectCode
    message: str
    needed: int | None = None
    available: int | None = None


@dataclass(frozen=True, slots=True)
class Admission:
    """Resume at `source` (None: from nothing) and compute from token `resume_at` on."""

    source: Candidate | None
    resume_at: int
    reason: ResumeReason


@dataclass(frozen=True, slots=True)
class Wait:
    """Something that runs has to end first; `short` cells, or a lane if 0."""

    short: int


def check_size(prompt_tokens: int, max_tokens: int | None, limits: Limits) -> Refusal | None:
    """Refuses what could never run. O(1)."""
    if prompt_tokens < 1 or (max_tokens is not None and max_tokens < 1):
        return Refusal(RejectCode.INVALID_PROMPT, "a request needs a prompt and room for one token")
    available = min(limits.context_tokens, limits.device_cells * limits.page_tokens)
    if prompt_tokens + 1 > available:
        message = (
            f"the prompt has {prompt_tokens} tokens and needs room for 1 more; "
            f"this engine holds {available} tokens in one context"
        )
        return Refusal(RejectCode.CONTEXT_LENGTH_EXCEEDED, message, prompt_tokens + 1, available)
    return None


def check_queue(waiting: int, limits: Limits) -> Refusal | None:
    """Refuses what finds the queue full. O(1)."""
    if waiting < limits.max_waiting:
        return None
    message = f"{waiting} requests are waiting already"
    return Refusal(RejectCode.QUEUE_FULL, message, waiting + 1, limits.max_waiting)


def output_limit(prompt_tokens: int, max_tokens: int | None, context_tokens: int) -> int:
    """Tokens that may be generated: what was asked for, cut to the context."""
    room = context_tokens - prompt_tokens
    return room if max_tokens is None else min(max_tokens, room)


def choose_source(
    tokens: int, matched: int, candidates: Sequence[Candidate]
) -> tuple[Candidate | None, ResumeReason]:
    """The longest candidate that leaves at least the last token to compute; at equal length the nearest tier. O(candidates)."""
    usable = [each for each in candidates if each.position < tokens]
    if usable:
        best = max(usable, key=lambda each: (each.position, -NEAREST.index(each.tier), -each.key))
        return best, ResumeReason.RESUMED
    if matched == 0:
        return None, ResumeReason.NOTHING_STORED
    return None, ResumeReason.NO_SHARED_CHECKPOINT


def admit(needed: int, pools: Pools, admission: Admission) -> Admission | Wait:
    """`needed`: device cells that the whole prompt and one token more take beyond those committed already. O(1)."""
    if pools.lanes == 0:
        return Wait(0)
    available = pools.cells - pools.committed - pools.immovable
    return admission if needed <= available else Wait(needed - available)
