"""The likeliest token of each row. Contract and dispatch; knows no request.

    greedy(logits)[b] = the first index of the largest finite number of row b, -1 where none is finite

logits [B, V] fp32, rows may lie apart; result [B] int64. Nothing is mutated.
"""

import torch

from engine.ops.greedy import native


def greedy(logits: torch.Tensor) -> torch.Tensor:
    if native.serves(logits):
        return native.greedy(logits)
    finite = logits.nan_to_num(nan=-torch.inf, posinf=-torch.inf, neginf=-torch.inf)
    largest, ids = finite.max(dim=-1)
    return ids.masked_fill(largest == -torch.inf, -1)
