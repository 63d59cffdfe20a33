"""From where a waiting sequence goes on: which checkpoint, and whether it has come from disk yet. Knows one sequence at a time, no queue."""

from dataclasses import dataclass, replace

from engine.api import CheckpointInfo, ResumeReason, Tier
from engine.cache.store import Cache, Line, Match
from engine.planner.admission import Candidate, choose_source
from engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Start:
    """`source` None: from nothing. `match` is all that the cache holds of the sequence's beginning."""

    source: Candidate | None
    reason: ResumeReason
    match: Match

    @property
    def position(self) -> int:
        return self.source.position if self.source else 0


@dataclass(frozen=True, slots=True)
class Resuming:
    """Mutates what a sequence awaits and refuses, and its estimate."""

    cache: Cache

    def match(self, sequence: Sequence) -> Start:
        """Where it would start now, checkpoints on disk included."""
        match = self.cache.look_up(line_of(sequence))
        usable = [each for each in match.candidates if each.key not in sequence.refused]
        source, reason = choose_source(len(sequence.tokens), match.matched, usable)
        if sequence.rejected:
            reason = ResumeReason.STATE_REJECTED
        return Start(source, reason, match)

    def aim(self, sequence: Sequence) -> None:
        """Notes what it has to wait for and how much is left to compute."""
        start = self.match(sequence)
        sequence.estimate = len(sequence.tokens) - start.position
        self.wait_for(sequence, start.source)

    def wait_for(self, sequence: Sequence, source: Candidate | None) -> None:
        on_disk = source is not None and source.tier is Tier.DISK
        sequence.awaits = source.key if source is not None and on_disk else None

    def is_ready(self, sequence: Sequence) -> bool:
        return sequence.awaits is None or not self.cache.is_on_disk(sequence.awaits)

    def fetch(self, sequence: Sequence, now: float) -> bool:
        """Has what it awaits brought from disk, unless another one is on its way. False if there's no room for it now."""
        if sequence.awaits is not None and sequence.awaits not in self.cache.checkpoints.all:
            sequence.rejected |= self.cache.was_bad(sequence.awaits)
            self.aim(sequence)
        if sequence.awaits is None or self.is_ready(sequence) or self.cache.is_restoring:
            return True
        return self.cache.restore(sequence.awaits, now)

    def do_without(self, sequence: Sequence) -> None:
        """What it awaits can't be had: the next best will do."""
        assert sequence.awaits is not None
        sequence.refused.add(sequence.awaits)
        sequence.rejected = True
        self.aim(sequence)

    def describe(self, source: Candidate, sequence: Sequence) -> CheckpointInfo:
        """The source as it is now, under the sequence's own label if it has one; on disk if it was brought from there for it."""
        checkpoint = self.cache.checkpoints.all[source.key]
        labels = checkpoint.labels
        label = labels.get(sequence.continuation) or next(iter(labels.values()))
        info = self.cache.checkpoints.info(checkpoint, label)
        return replace(info, tier=Tier.DISK) if source.key == sequence.awaits else info


def line_of(sequence: Sequence) -> Line:
    return Line(sequence.tenant, sequence.line)
