"""State images: one lane's whole recurrent state (delta rule and convolution) packed into cells. Knows no tokens.

packed   ┌ recurrent, fp32 ──────────────────────────┬ convolution, its dtype ─┬ padding to whole cells ┐
"""

import torch

from engine.cache.arena import WORD_BYTES


class Images:
    """Packs and unpacks through one staging buffer [cells, words]; `recurrent` and `conv` are the lanes' pools."""

    def __init__(self, recurrent: torch.Tensor, conv: torch.Tensor, cell_bytes: int) -> None:
        self._recurrent = recurrent
        self._conv = conv
        split = recurrent[0].nbytes
        total = split + conv[0].nbytes
        self.cells = max(1, -(-total // cell_bytes))
        self._staging = torch.zeros(
            (self.cells, cell_bytes // WORD_BYTES), dtype=torch.int64, device=recurrent.device
        )
        flat = self._staging.view(torch.uint8).view(-1)
        self._recurrent_part = flat[:split].view(recurrent.dtype).view(recurrent[0].shape)
        self._conv_part = flat[split:total].view(conv.dtype).view(conv[0].shape)

    def pack(self, lane: int) -> torch.Tensor:
        """The lane's image [cells, words] int64; valid until the next pack or unpack."""
        self._recurrent_part.copy_(self._recurrent[lane])
        self._conv_part.copy_(self._conv[lane])
        return self._staging

    def unpack(self, lane: int, image: torch.Tensor) -> None:
        """Overwrites the lane's state with `image` [cells, words] int64 from either tier."""
        self._staging.copy_(image)
        self._recurrent[lane].copy_(self._recurrent_part)
        self._conv[lane].copy_(self._conv_part)
