"""What lost tokens and moved bytes cost in time and memory. Figures of one machine and model; knows no policy."""

from dataclasses import dataclass

DEFAULT_PREFILL = 2000.0
DEFAULT_RESTORE = 25e9


@dataclass(frozen=True, slots=True)
class Cost:
    """The defaults are a 27B model of the Qwen3.5 family on one RTX 4090: some 2,000 prompt tokens a second up to 64 k tokens of
    context, 25 GB/s from main memory to the device (PCIe 4.0), 64 KiB of KV a token in bf16, 147 MiB of recurrent state.

    Each resume is taken to bring its state from main memory: that is the dearer case, and the same for all policies.
    """

    prefill_tokens_s: float = DEFAULT_PREFILL
    restore_bytes_s: float = DEFAULT_RESTORE
    token_bytes: int = 65_536
    image_bytes: int = 147 << 20

    def seconds(self, prompt_tokens: int, reused_tokens: int) -> float:
        """Time from a request's arrival to its prompt's end, with nothing else in the way."""
        restored = reused_tokens * self.token_bytes + self.image_bytes if reused_tokens else 0
        prefilled = prompt_tokens - reused_tokens
        return prefilled / self.prefill_tokens_s + restored / self.restore_bytes_s

    def tokens_in(self, room: int) -> int:
        """How many tokens of KV fit into `room` bytes, without any state."""
        return room // self.token_bytes
