"""The token ledger: turns the engine produced, kept as the tokens they were produced with. Knows no text of them."""

import struct
from collections.abc import Sequence

from engine.api import LedgerEntry
from engine.text.errors import PromptError
from engine.text.markup import Markup


def make_entry(
    markup: Markup, opener: Sequence[int], generated: Sequence[int], calls_in_reasoning: int = 0
) -> LedgerEntry:
    """The entry of one finished turn, closed the way a complete turn is.

    `opener` are the prompt's tokens behind `assistant\\n`, `generated` the sampled ones, with or without the end token.
    A turn cut off in its reasoning gets the block closed too, unless it ended in `calls_in_reasoning` calls made from there.

        opener        generated                          supplied
        <think>\\n     reasoning </think> \\n\\n answer     <|im_end|>
                                            └ content_offset
    """
    tokens = [*opener, *generated]
    if generated and generated[-1] in markup.stop_ids:
        tokens.pop()
    offset = _content_offset(markup, tokens)
    if offset is None and calls_in_reasoning:
        offset = _last_calls(markup, tokens, calls_in_reasoning)
    elif offset is None:
        tokens += markup.reasoning_closer
        offset = len(tokens)
    tokens.append(markup.turn_end)
    return LedgerEntry(struct.pack(f"<{len(tokens)}I", *tokens), offset, markup.tokenizer_id)


def entry_tokens(markup: Markup, entry: LedgerEntry, drop_reasoning: bool) -> tuple[int, ...]:
    """The turn's tokens behind `assistant\\n`, up to and with its end token. Raises PromptError for a damaged entry."""
    count, rest = divmod(len(entry.tokens), 4)
    if rest or not count:
        raise PromptError(f"a ledger entry of {len(entry.tokens)} bytes is damaged")
    tokens = struct.unpack(f"<{count}I", entry.tokens)
    if tokens[-1] != markup.turn_end or max(tokens) >= markup.vocab_limit:
        raise PromptError(
            "a ledger entry is damaged: it holds tokens that end no turn or don't exist"
        )
    if not 0 <= entry.content_offset < count:
        raise PromptError(f"a ledger entry is damaged: content_offset {entry.content_offset}")
    return tokens[entry.content_offset :] if drop_reasoning else tokens


def _content_offset(markup: Markup, tokens: list[int]) -> int | None:
    """Index of the first token behind the reasoning block and its line breaks; None when the block is never closed."""
    if markup.think_open not in tokens[:1]:
        return 0
    if markup.think_close not in tokens:
        return None
    offset = tokens.index(markup.think_close) + 1
    while offset < len(tokens) and markup.is_blank(tokens[offset]):
        offset += 1
    return offset


def _last_calls(markup: Markup, tokens: list[int], calls: int) -> int:
    """Index where the last `calls` tool calls begin; the end where they were not opened by the control token."""
    starts = [index for index, token in enumerate(tokens) if token == markup.call_open]
    return starts[-calls] if len(starts) >= calls else len(tokens)
