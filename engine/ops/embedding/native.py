"""The embedding in C. Knows CPU tensors only."""

import torch

from engine.ops.native import call, library


def serves(table: torch.Tensor, dtype: torch.dtype) -> bool:
    known = table.dtype in (torch.bfloat16, torch.float32)
    return known and dtype is torch.float32 and table.is_cpu and library() is not None


def embedding(token_ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    tokens, size = token_ids.shape[0], table.shape[1]
    out = torch.empty(tokens, size)
    call("embedding", token_ids, table, table.dtype is torch.bfloat16, tokens, size, out)
    return out
