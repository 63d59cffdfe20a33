"""The engine as it is, read off the scheduler into a value. Changes nothing."""

from engine.api import LaneInfo, RequestId, Snapshot
from engine.scheduler import Scheduler


def take_snapshot(scheduler: Scheduler, request: RequestId) -> Snapshot:
    """O(checkpoints)."""
    cache = scheduler.cache
    lanes = (
        LaneInfo(
            lane=lane,
            request_id=each.request_id,
            continuation=each.continuation,
            prompt_tokens=each.prompt_tokens,
            computed_tokens=each.computed,
            output_tokens=each.output_tokens,
        )
        for lane, each in sorted(scheduler.running.items())
    )
    return Snapshot(
        request_id=request,
        lanes=tuple(lanes),
        waiting=len(scheduler.waiting),
        continuations=cache.continuations(),
        tiers=cache.usage(),
        counters=scheduler.counted(),
        restoring=scheduler.restoring,
    )
