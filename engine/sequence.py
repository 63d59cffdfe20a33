"""One admitted token stream: its tokens, how far it is computed, what it still wants. Knows no memory, no text, no tensors.

tokens    ┌ prompt ──────────────────┬ generated ──────┬ closing ┐
computed  ──────────────▶            (state and KV stand here)
wanted             ▲          ▲                        ▲ tip
"""

from array import array
from bisect import insort
from collections.abc import Sequence as Ordered
from dataclasses import dataclass, field

from engine.api import (
    Anchor,
    AnchorKind,
    CheckpointId,
    ContinuationId,
    FinishReason,
    RequestId,
    Sampling,
    TenantKey,
)

CLOSING_TOKENS = 32
"""A turn that was cut off ends with a few supplied tokens; so many may ride along with decodes."""


@dataclass(slots=True, eq=False)
class Sequence:
    """`tokens` only grows; `counts` says how often each was sampled, `banned` ones never are. `wanted` are positions of checkpoints not taken yet, ascending. `estimate` tokens are thought to need
    computing while it waits; `overtaken` counts prompt tokens of later arrivals served before it. `parked` names what
    was kept of it when it was preempted, `departures` how many sequences had left by then. `reached` is the farthest that
    `computed` has been, `spent` how many tokens were computed for it in all, some of them twice. `awaits` is the checkpoint that
    it needs from disk; those in `refused` can't be had, and `rejected` says that one was lost to it.
    """

    request_id: RequestId
    tenant: TenantKey
    continuation: ContinuationId
    sampling: Sampling
    arrival: int
    tokens: "array[int]"
    prompt_tokens: int
    output_limit: int
    wanted: list[tuple[int, AnchorKind]]
    seed: int = 0
    banned: tuple[int, ...] = ()
    counts: dict[int, int] = field(default_factory=dict)
    estimate: int = 0
    overtaken: int = 0
    lane: int | None = None
    computed: int = 0
    reached: int = 0
    spent: int = 0
    started: bool = False
    ending: FinishReason | None = None
    parked: CheckpointId | None = None
    departures: int | None = None
    awaits: int | None = None
    refused: set[int] = field(default_factory=set)
    rejected: bool = False
    checkpoints: dict[CheckpointId, None] = field(default_factory=dict)

    @property
    def line(self) -> memoryview:
        """The tokens as bytes. While such a view exists the tokens can't grow: take a fresh one each time."""
        return memoryview(self.tokens.tobytes())

    @property
    def output_tokens(self) -> int:
        return len(self.tokens) - self.prompt_tokens

    @property
    def remaining(self) -> int:
        return len(self.tokens) - self.computed

    @property
    def reused(self) -> int:
        """Prompt tokens that were not computed, less what was computed again; at least 0."""
        return min(max(self.reached - self.spent, 0), self.prompt_tokens)

    @property
    def left(self) -> tuple[CheckpointId, ...]:
        """All that it leaves if it ends now."""
        return (*self.checkpoints, *(() if self.parked is None else (self.parked,)))

    @property
    def closing(self) -> bool:
        """Nothing more is sampled; what remains is computed for the tip's sake."""
        return self.ending is not None

    @property
    def urgent(self) -> bool:
        """Decoding or closing, not recomputing."""
        few = CLOSING_TOKENS if self.closing else 1
        return self.output_tokens > 0 and self.remaining <= few

    @property
    def until_stop(self) -> int:
        """Tokens up to the next wanted checkpoint, or to the end of what is known."""
        ahead = (position for position, _ in self.wanted if position > self.computed)
        return min(next(ahead, len(self.tokens)), len(self.tokens)) - self.computed

    def enter(self, lane: int, resume_at: int) -> None:
        assert self.lane is None
        assert resume_at < len(self.tokens)
        self.lane, self.computed = lane, resume_at
        self.reached = max(self.reached, resume_at)
        self.wanted = [want for want in self.wanted if want[0] > resume_at]

    def leave(self) -> None:
        assert self.lane is not None
        self.lane, self.computed = None, 0

    def advance(self, count: int) -> None:
        assert self.lane is not None
        assert 0 < count <= self.remaining
        self.computed += count
        self.spent += count
        self.reached = max(self.reached, self.computed)

    def append(self, token: int) -> None:
        """A sampled token; everything before it is computed."""
        assert self.remaining == 0
        assert not self.closing
        self.tokens.append(token)
        self.counts[token] = self.counts.get(token, 0) + 1

    def close(self, reason: FinishReason, turn: Ordered[int]) -> None:
        """No more sampling. `turn` are all tokens behind the prompt in the form in which the turn will be replayed; what is computed
        agrees with them. Their end becomes the tip.
        """
        assert not self.closing
        done = max(self.computed - self.prompt_tokens, 0)
        kept = self.prompt_tokens + done
        assert list(self.tokens[self.prompt_tokens : kept]) == list(turn[:done])
        del self.tokens[kept:]
        self.tokens.extend(turn[done:])
        self.wanted.append((len(self.tokens), AnchorKind.TIP))
        self.ending = reason

    def want(self, position: int, kind: AnchorKind) -> None:
        """One checkpoint more ahead, unless one is wanted there already."""
        assert self.computed < position <= len(self.tokens)
        if not self.wants(position):
            insort(self.wanted, (position, kind))

    def wants(self, position: int) -> bool:
        return any(at == position for at, _ in self.wanted)

    def due(self) -> AnchorKind | None:
        """The kind wanted exactly here; no longer wanted after this call."""
        if self.wanted and self.wanted[0][0] == self.computed:
            return self.wanted.pop(0)[1]
        return None


@dataclass(frozen=True, slots=True)
class Work:
    """`tokens` of the sequence to compute in this step, from its `computed` on; `sample`: they end its known tokens, the next
    one is wanted.
    """

    sequence: Sequence
    tokens: int
    sample: bool


def wanted_positions(
    anchors: Ordered[Anchor],
    ladder_tokens: int | None,
    borders: Ordered[int],
    prompt_tokens: int,
) -> list[tuple[int, AnchorKind]]:
    """Anchors as ascending token positions within the prompt, each once: the first anchor named for a position gives the kind,
    a ladder rung only where none does. An anchor behind the last message moves to its border; one before the first token is void.
    """
    wanted: dict[int, AnchorKind] = {}
    for anchor in anchors:
        border = borders[min(max(anchor.messages, 0), len(borders) - 1)]
        position = min(border - anchor.back, prompt_tokens)
        if position > 0:
            wanted.setdefault(position, anchor.kind)
    if ladder_tokens is not None and ladder_tokens > 0:
        for position in range(ladder_tokens, prompt_tokens + 1, ladder_tokens):
            wanted.setdefault(position, AnchorKind.LADDER)
    return sorted(wanted.items())
