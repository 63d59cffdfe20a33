"""Whether and where a prompt can go on from a checkpoint: the single rule. Knows positions, not who stores them."""

from collections.abc import Iterable

from ninfer_proxy.planning.eviction import line_end
from ninfer_proxy.types import CheckpointInfo, Match, SlotState


def usable(checkpoint_position: int, shared_tokens: int, prompt_tokens: int) -> bool:
    """Can a prompt resume there?

    A recurrent state is valid at its own position only, so all of that checkpoint's tokens must be the prompt's (the first
    `shared_tokens` are), and one token must be left to compute, whose logits are wanted.
    """
    return 0 < checkpoint_position <= min(shared_tokens, prompt_tokens - 1)


def best_checkpoint(
    checkpoints: Iterable[CheckpointInfo], shared_tokens: int, prompt_tokens: int
) -> CheckpointInfo | None:
    """The usable checkpoint that saves most; of equal ones the first."""
    fitting = [each for each in checkpoints if usable(each.position, shared_tokens, prompt_tokens)]
    return max(fitting, key=lambda each: each.position, default=None)


def expected_tokens(held: SlotState | None, match: Match) -> int:
    """Where planning believes that the engine resumes a turn; `held` is the slot of its conversation.

    Tokens are known only of a line that is carried on whole: the prompt has all of it, and the generation opener at
    least behind it. 0 otherwise: nothing is held, or only the engine can tell.
    """
    if held is None or match.divergence is not None or match.head_changed:
        return 0
    line = line_end(held.checkpoints)
    best = best_checkpoint(held.checkpoints, line, line + 1)
    return best.position if best else 0
