"""Takes checkpoints of sequences that hold a lane. Knows one sequence at a time and the cache; no queue.

A checkpoint is never worth a request: one that can't be saved is left out and counted, and the sequence goes on.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from engine.api import AnchorKind, CheckpointId
from engine.cache.store import Cache
from engine.outcomes import Counters
from engine.resuming import line_of
from engine.sequence import Sequence

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Saving:
    """`is_doubtful`: a save broke off midway since the accounts of memory were last proved."""

    cache: Cache
    counters: Counters
    is_doubtful: bool = False

    def save(
        self, sequence: Sequence, kind: AnchorKind, now: float, lossless: bool = False
    ) -> CheckpointId | None:
        """A checkpoint where the sequence stands, noted with it; `lossless`: only if no other ceases to exist for it."""
        lane, label = _lane(sequence), sequence.continuation
        name = self._attempt(
            sequence,
            lambda: self.cache.save(
                lane, line_of(sequence), sequence.computed, label, kind, now, lossless
            ),
        )
        if name is not None:
            self.counters.checkpoints_saved += 1
            sequence.checkpoints[name] = None
        return name

    def keep_progress(
        self, sequence: Sequence, now: float, lossless: bool = False
    ) -> CheckpointId | None:
        """A checkpoint of the part of the prompt that is computed, for whoever asks again, if there's none yet."""
        if sequence.lane is None or not 0 < sequence.computed <= sequence.prompt_tokens:
            return None
        if self.cache.standing(line_of(sequence), sequence.computed) is not None:
            return None
        return self.save(sequence, AnchorKind.LADDER, now, lossless)

    def park(self, sequence: Sequence, now: float) -> None:
        """What a preempted sequence has computed, kept for its return."""
        lane, label = _lane(sequence), sequence.continuation
        if sequence.computed > 0:
            sequence.parked = self._attempt(
                sequence,
                lambda: self.cache.park(lane, line_of(sequence), sequence.computed, label, now),
                is_wanted=False,
            )

    def forget_parked(self, sequence: Sequence) -> None:
        if sequence.parked is not None:
            self.cache.supersede(sequence.continuation, sequence.parked)
            sequence.parked = None

    def _attempt(
        self,
        sequence: Sequence,
        keep: Callable[[], CheckpointId | None],
        is_wanted: bool = True,
    ) -> CheckpointId | None:
        """What `keep` made, if anything. `is_wanted`: it counts as skipped if there was no room worth it."""
        try:
            name = keep()
        except Exception:
            log.exception("request %s: a checkpoint could not be saved", sequence.request_id)
            self.counters.checkpoints_failed += 1
            self.is_doubtful = True
            return None
        self.counters.checkpoints_skipped += is_wanted and name is None
        return name


def _lane(sequence: Sequence) -> int:
    assert sequence.lane is not None
    return sequence.lane
