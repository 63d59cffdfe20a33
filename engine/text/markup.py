"""The control tokens a chat turn is made of, by meaning. Knows which they are, not what a prompt looks like."""

from collections.abc import Sequence

from engine.text.errors import TextFilesError
from engine.text.tokenizer import Tokenizer


class Markup:
    """Ids of the turn, reasoning and tool-call tokens of one tokenizer, and what the engine writes with them.

    `think_open` and the others after it are None where the tokenizer has no such token. `stop_ids` end a generation
    (`turn_end` is always one of them). `reasoning_closer` are the tokens that close a reasoning block a limit cut off.
    """

    def __init__(self, tokenizer: Tokenizer, tokenizer_id: str, stop_ids: Sequence[int]) -> None:
        """Raises TextFilesError when the tokenizer has no turn tokens."""
        ids = tokenizer.control_ids
        if "<|im_start|>" not in ids or "<|im_end|>" not in ids:
            raise TextFilesError("tokenizer.json has no <|im_start|> and <|im_end|>")
        self.tokenizer_id = tokenizer_id
        self.vocab_limit = tokenizer.vocab_limit
        self.turn_start = ids["<|im_start|>"]
        self.turn_end = ids["<|im_end|>"]
        self.think_open = ids.get("<think>")
        self.think_close = ids.get("</think>")
        self.call_open = ids.get("<tool_call>")
        self.response_close = ids.get("</tool_response>")
        self.stop_ids = tuple(sorted({*stop_ids, self.turn_end}))
        self.assistant = tokenizer.encode("assistant\n")
        self.reasoning_closer: tuple[int, ...] = ()
        if self.think_close is not None:
            self.reasoning_closer = (
                *tokenizer.encode("\n"),
                self.think_close,
                *tokenizer.encode("\n\n"),
            )
        self._tokenizer = tokenizer

    def is_blank(self, token_id: int) -> bool:
        """Whether the token is blank space and nothing else."""
        data = self._tokenizer.token_bytes(token_id)
        return bool(data) and not data.strip()

    def reasoning_open(self, opener: Sequence[int]) -> bool:
        """Whether a generation opener leaves a reasoning block open."""
        return self.think_open in opener and self.think_close not in opener
