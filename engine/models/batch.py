"""What one forward works on: the tokens of a step and the pools that hold every sequence's state. Owns no policy, no allocation order.

token_ids   [ prefill chunk of s0 ......... | s1 | s2 | chunk of s3 ... ]
starts      0                               n    n+1  n+2              T
"""

from dataclasses import dataclass

import torch

from engine.models.config import ModelConfig


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """One step's tokens, all sequences laid end to end.

    token_ids, positions [T] int64; sequence s owns rows starts[s] .. starts[s+1] (at least one), `context_lens[s]` tokens of it are
    in the pools already, its state is row `lanes[s]` of the state pools, and `page_tables[s]` [>= pages needed] int64 names its
    pages in order, those for this step's tokens included. Positions count as the rotary embedding does (for text: the
    token's index). `logit_rows` [R] int64: the rows of T whose logits are wanted. With context_lens[s] 0 the lane's state counts
    as zero and is not read.
    """

    token_ids: torch.Tensor
    positions: torch.Tensor
    starts: tuple[int, ...]
    context_lens: tuple[int, ...]
    lanes: tuple[int, ...]
    page_tables: tuple[torch.Tensor, ...] | torch.Tensor
    logit_rows: torch.Tensor

    def __post_init__(self) -> None:
        sequences = len(self.lanes)
        assert len(self.starts) == sequences + 1
        assert len(self.context_lens) == len(self.page_tables) == sequences
        assert len(set(self.lanes)) == sequences, "two sequences share a lane"
        assert (self.starts[0], self.starts[-1]) == (0, self.token_ids.shape[0])
        assert all(a < b for a, b in zip(self.starts, self.starts[1:], strict=False))
        assert self.positions.shape[-1] == self.token_ids.shape[0]


@dataclass(frozen=True, slots=True)
class CachePools:
    """State of all sequences. A page, and a lane of each state pool, is one contiguous run of memory: copied in one piece.

    kv         [pages, attention_layers, key | value, page_tokens, kv_heads, head_dim], activation dtype or a smaller one
    recurrent  [lanes, gdn_layers, value_heads, key_dim, value_dim], fp32
    conv       [lanes, gdn_layers, conv_channels, kernel - 1], activation dtype
    """

    kv: torch.Tensor
    recurrent: torch.Tensor
    conv: torch.Tensor

    @property
    def page_tokens(self) -> int:
        return self.kv.shape[3]


def allocate_pools(
    config: ModelConfig,
    num_pages: int,
    num_lanes: int,
    page_tokens: int,
    dtype: torch.dtype,
    device: torch.device,
    kv_dtype: torch.dtype | None = None,
) -> CachePools:
    """Pools with undefined contents: whatever is read was written before.

    `dtype` is the model's; keys and values are kept in it too unless `kv_dtype` names another.
    """
    shape = config.page_shape(page_tokens)
    return CachePools(
        kv=torch.empty(num_pages, *shape, dtype=kv_dtype or dtype, device=device),
        recurrent=torch.empty(
            num_lanes, *config.recurrent_shape, dtype=torch.float32, device=device
        ),
        conv=torch.empty(num_lanes, *config.conv_shape, dtype=dtype, device=device),
    )
