"""How a waiting sequence gets its lane: ask planner.admission, adopt, open. Knows the cache and one sequence; no queues."""

from dataclasses import dataclass

from engine.api import CheckpointInfo, RejectCode, ResumeReason
from engine.cache.store import Cache, Match
from engine.planner.admission import Admission, Limits, Refusal, Wait, admit
from engine.planner.memory import ceil_div
from engine.resuming import Resuming, Start
from engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Entry:
    """A sequence that got a lane. `source` as it was before anything moved."""

    sequence: Sequence
    reused: int
    matched: int
    reason: ResumeReason
    source: CheckpointInfo | None


@dataclass(frozen=True, slots=True)
class Entrance:
    cache: Cache
    limits: Limits

    def enter(
        self, sequence: Sequence, start: Start, promised: int, alone: bool, now: float
    ) -> Entry | Refusal | Wait:
        """Takes a lane for it if the device has memory for all its tokens beside `promised` cells; `start` is what the cache holds right
        now. Refused only if it's `alone` and pins hold that memory.
        """
        tokens = len(sequence.tokens) + 1
        needed = self.cache.cells_needed(start.source, tokens)
        verdict = admit(
            needed,
            self.cache.pools(start.source, needed, promised, now),
            Admission(start.source, start.position, start.reason),
        )
        if isinstance(verdict, Wait):
            return self.pinned(tokens) if alone and verdict.short > 0 else verdict
        return self._open(sequence, start.match, verdict, alone, now)

    def growth(self, sequence: Sequence) -> int:
        """Cells that a running sequence's known tokens still need, and one page more, so that a newcomer isn't pushed out again at once."""
        assert sequence.lane is not None
        pages = ceil_div(len(sequence.tokens) + 1, self.limits.page_tokens) + 1
        most = ceil_div(self.limits.context_tokens, self.limits.page_tokens)
        return max(0, min(pages, most) - len(self.cache.lanes.pages[sequence.lane]))

    def pinned(self, tokens: int) -> Refusal:
        cells = self.cache.pages.device.cells * self.limits.page_tokens
        message = f"{tokens} tokens need memory that pinned continuations hold"
        return Refusal(RejectCode.MEMORY_PINNED, message, tokens, cells)

    def _open(
        self, sequence: Sequence, match: Match, admission: Admission, alone: bool, now: float
    ) -> Entry | Wait:
        source = admission.source
        info = None if source is None else Resuming(self.cache).describe(source, sequence)
        self.adopt(sequence, match, admission.resume_at)
        lane = self.cache.open(source, now)
        if lane is None and not alone:
            return Wait(1)
        if lane is None:
            lane, info = self.cache.open(None, now), None
            admission = Admission(None, 0, ResumeReason.STATE_REJECTED)
        assert lane is not None
        sequence.enter(lane, admission.resume_at)
        sequence.awaits = None
        return Entry(sequence, admission.resume_at, match.matched, admission.reason, info)

    def adopt(self, sequence: Sequence, match: Match, resume_at: int) -> None:
        """Wanted checkpoints up to the resume point that exist already become this continuation's too."""
        kinds = dict(sequence.wanted)
        for candidate in match.candidates:
            kind = kinds.get(candidate.position)
            if kind is not None and candidate.position <= resume_at:
                name = self.cache.adopt(candidate, sequence.continuation, kind)
                sequence.checkpoints[name] = None
