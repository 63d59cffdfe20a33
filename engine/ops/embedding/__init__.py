"""Rows of the embedding table. Contract and dispatch; knows no model.

    embedding(token_ids, table, dtype)[t] = table[token_ids[t]]

token_ids [T] int64, table [vocabulary, n] any float dtype; result [T, n] in `dtype`. Nothing is mutated.
"""

import torch
import torch.nn.functional as F

from engine.ops.embedding import native


def embedding(token_ids: torch.Tensor, table: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if native.serves(table, dtype):
        return native.embedding(token_ids, table)
    return F.embedding(token_ids, table).to(dtype)
