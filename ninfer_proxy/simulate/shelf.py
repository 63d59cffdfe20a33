"""The checkpoints of a simulated engine: where they stand, who labels them, which make way. Knows positions and bytes, no conversation.

The engine's own rules do the choosing: `planning.resume.usable` where a prompt goes on, `engine.planner.residency` what is dropped.
Memory is one tier, counted in stretches of tokens that checkpoints share.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from engine.api import AnchorKind, CheckpointId, CheckpointInfo, ContinuationId, Retention, Tier
from engine.planner.residency import PINNED, Held, Label, Worth, choose_victims, leaving_memory
from ninfer_proxy.planning.resume import usable
from ninfer_proxy.simulate.cost import Cost
from ninfer_proxy.simulate.line import Line

STRETCH_TOKENS = 1024


class Shelf:
    """Mutable. Without `limit` (bytes) nothing is dropped but on request."""

    def __init__(self, limit: int | None, cost: Cost) -> None:
        self._limit = limit
        self._cost = cost
        self._labels: dict[Line, dict[ContinuationId, Label]] = {}
        self._of: dict[ContinuationId, dict[CheckpointId, tuple[Line, AnchorKind]]] = {}
        self._retentions: dict[ContinuationId, Retention] = {}
        self._serial = 0
        self._holders: Counter[Line] = Counter()
        self._held_tokens = 0
        self._stretches: dict[Line, tuple[Line, ...]] = {}

    def resume_at(self, prompt: Line) -> int:
        """Where a prompt goes on."""
        ends = (at.end for at in self._labels if at.end < prompt.end and at.begins(prompt))
        return max((end for end in ends if usable(end, end, prompt.end)), default=0)

    def stands(self, at: Line) -> bool:
        return at in self._labels

    def save(self, at: Line, continuation: ContinuationId, kind: AnchorKind) -> None:
        """A checkpoint there for the continuation; one that stands already gets its label."""
        self._serial += 1
        if at not in self._labels:
            self._labels[at] = {}
            self.hold(at)
        known = self._labels[at].get(continuation)
        name = known.checkpoint if known else CheckpointId(f"c{self._serial}")
        self._labels[at][continuation] = Label(name, continuation, kind, self._serial)
        self._of.setdefault(continuation, {})[name] = (at, kind)

    def checkpoints(self, continuation: ContinuationId) -> tuple[CheckpointInfo, ...]:
        """In the order they were made. Bytes are left out: planning asks for positions."""
        return tuple(
            CheckpointInfo(name, continuation, kind, at.end, Tier.DEVICE, 0)
            for name, (at, kind) in self._of.get(continuation, {}).items()
        )

    def retain(self, retention: Retention) -> None:
        """What a continuation is worth from now on."""
        self._retentions[retention.continuation] = retention

    def drop(
        self, continuation: ContinuationId, names: Iterable[CheckpointId] | None = None
    ) -> None:
        """Takes labels off, all of the continuation's where none is named."""
        own = self._of.get(continuation, {})
        for name in tuple(own) if names is None else names:
            at, _ = own.pop(name)
            del self._labels[at][continuation]
            if not self._labels[at]:
                del self._labels[at]
                self.release(at)
        if not own:
            self._of.pop(continuation, None)

    def hold(self, line: Line) -> None:
        """Keeps the line's tokens in memory: a checkpoint's, or those of a request that runs."""
        if self._limit is None:
            return
        for stretch in self._stretches_of(line):
            self._holders[stretch] += 1
            if self._holders[stretch] == 1:
                self._held_tokens += _length(stretch)

    def release(self, line: Line) -> None:
        if self._limit is None:
            return
        for stretch in self._stretches_of(line):
            self._holders[stretch] -= 1
            if self._holders[stretch] == 0:
                del self._holders[stretch]
                self._held_tokens -= _length(stretch)

    def make_room(self, now: float) -> int:
        """Drops checkpoints until the limit is kept, or nothing more can go. Returns how many continuations lost their last one."""
        if self._limit is None or self._short() <= 0:
            return 0
        worth = Worth(self._retentions, now)
        ranks = {at: worth.checkpoint(labels.values()) for at, labels in self._labels.items()}
        order = sorted(
            (at for at, rank in ranks.items() if rank[0] != PINNED),
            key=lambda at: leaving_memory(ranks[at], on_disk=False),
        )
        each = STRETCH_TOKENS * self._cost.token_bytes
        bare = 0
        while (short := self._short()) > 0 and order:
            held = (Held(self._cost.image_bytes, self._stretches_of(at)) for at in order)
            chosen = choose_victims(held, self._holders.__getitem__, short, each)
            victims, order = order[:chosen], [] if chosen is None else order[chosen:]
            bare += sum(map(self._forget, victims))
        return bare

    def _forget(self, at: Line) -> int:
        """Drops the checkpoint under all its labels; how many continuations have none left."""
        labels = tuple(self._labels[at].items())
        for continuation, label in labels:
            self.drop(continuation, (label.checkpoint,))
        return sum(continuation not in self._of for continuation, _ in labels)

    def _short(self) -> int:
        """Bytes missing."""
        assert self._limit is not None
        images = len(self._labels) * self._cost.image_bytes
        return self._held_tokens * self._cost.token_bytes + images - self._limit

    def _stretches_of(self, line: Line) -> tuple[Line, ...]:
        if line not in self._stretches:
            self._stretches[line] = tuple(_stretches(line))
        return self._stretches[line]


def _stretches(line: Line) -> Iterator[Line]:
    """The line's beginnings at each whole stretch, and itself for the rest."""
    end = STRETCH_TOKENS
    for run in line.path:
        while end <= run.end:
            yield run.cut(end)
            end += STRETCH_TOKENS
    if line.end % STRETCH_TOKENS:
        yield line


def _length(stretch: Line) -> int:
    """Tokens of a stretch, given as the line up to its end."""
    return (stretch.end - 1) % STRETCH_TOKENS + 1
