"""Whether a prompt had better wait for one that runs and begins alike, instead of computing the same tokens again. Pure; moves nothing.

    leader     ██████████████░░░░░░░░│░░░░░░░░░░░░░      has computed █ and goes on to its own end
    follower   ▒▒▒▒──────────────────│──────             could begin behind ▒ now, or at │ once the leader has been there
                                     └ stop: a checkpoint the leader leaves where the two part

Recurrent state exists at one position only, so the leader must not be past the stop. Nor may it be behind the point where the
follower could begin now: then whatever it still has to compute up to the stop, the follower would have to compute as well, and
waiting never costs more than computing alone.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

BLOCK_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class Sharing:
    """A prompt waits if that spares it `least` tokens. A checkpoint that the leader makes anyway serves instead of one of its own if
    it's at most `slack` tokens short of where the two part.
    """

    least: int = 256
    slack: int = 64


@dataclass(frozen=True, slots=True)
class Leader:
    """One running prompt seen from a waiting one: `common` tokens are the same in both, `stops` are where it will make checkpoints."""

    lane: int
    computed: int
    common: int
    stops: Sequence[int]


@dataclass(frozen=True, slots=True)
class Lead:
    """Wait for the checkpoint that `lane` leaves at `stop`."""

    lane: int
    stop: int


def choose_lead(
    leaders: Iterable[Leader], reusable: int, tokens: int, sharing: Sharing
) -> Lead | None:
    """Whom a prompt of `tokens` tokens waits for, that could begin at `reusable` now; None if it had better begin. O(leaders × stops).

    Of several the one is chosen that spares most work and needs least waiting: both are counted in tokens and summed.
    """
    best: tuple[int, int, int] | None = None
    for leader in leaders:
        stop = _stop(leader, tokens, sharing)
        if reusable <= leader.computed < stop and stop - reusable >= sharing.least:
            offer = (stop + leader.computed, -leader.lane, stop)
            best = offer if best is None else max(best, offer)
    return None if best is None else Lead(-best[1], best[2])


def _stop(leader: Leader, tokens: int, sharing: Sharing) -> int:
    """The last token of a prompt is always computed by itself: its logits are wanted."""
    parting = min(leader.common, tokens - 1)
    near = [at for at in leader.stops if parting - sharing.slack <= at <= parting]
    return max((at for at in near if at > leader.computed), default=parting)


def common_tokens(left: "array[int]", right: "array[int]") -> int:
    """How many tokens both begin with. O(that many), block by block."""
    end = min(len(left), len(right))
    for start in range(0, end, BLOCK_TOKENS):
        mine = left[start : min(start + BLOCK_TOKENS, end)]
        other = right[start : min(start + BLOCK_TOKENS, end)]
        if mine != other:
            return start + next(at for at, token in enumerate(mine) if token != other[at])
    return end
