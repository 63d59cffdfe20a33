"""Generated tokens of one request to pieces of reasoning, text and tool calls. Knows no sampling and no client.

token → control token? → bytes → characters → calls cut out → reasoning channel, later text channel → pieces
"""

from collections.abc import Iterable, Sequence

from engine.api import DeltaKind, FinishReason, LedgerEntry
from engine.text.call_body import Tools
from engine.text.channels import Piece, ReasoningChannel, TextChannel
from engine.text.detokenize import Detokenizer
from engine.text.ledger import make_entry
from engine.text.markup import Markup
from engine.text.scanner import CallScanner
from engine.text.tokenizer import Tokenizer
from engine.text.tool_calls import Call


class OutputStream:
    """One request's output. `feed` each sampled token once, then `finish`; all text comes out, each byte in one channel.

    Control tokens flagged special never become text, those of reasoning and calls do where they are prose. Half a
    character at the end of a run is no text. A stop string counts in text only, not in reasoning or a call. A call in
    the reasoning is served if the reasoning ends in it, is never closed, and the model ended by itself; else it stays
    reasoning.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        markup: Markup,
        thinking: bool,
        tools: Tools,
        stop: Sequence[str],
    ) -> None:
        """`thinking`: the opener left a reasoning block open. `tools` are those that may be called (none: calls are text)."""
        self._tokenizer = tokenizer
        self._markup = markup
        self._characters = Detokenizer()
        self._calls = CallScanner(tools)
        self._reasoning = ReasoningChannel() if thinking else None
        self._text = TextChannel(stop)
        self._untouched = True
        self._calls_in_reasoning = 0
        self._tokens = 0
        self.reasoning_tokens = 0
        """Tokens fed while the reasoning block was open, its closer included."""

    @property
    def stopped(self) -> bool:
        """A stop string was hit; nothing comes out any more."""
        return self._text.stopped

    def feed(self, token_id: int) -> tuple[Piece, ...]:
        """The pieces that became certain with this token; often none."""
        self._tokens += 1
        if self.stopped:
            return ()
        markup = self._markup
        if token_id == markup.think_open and self._untouched:
            self._reasoning = self._reasoning or ReasoningChannel()
        self.reasoning_tokens += self._reasoning is not None
        if token_id == markup.think_close and (self._reasoning or self._untouched):
            pieces = self._close_reasoning()
        elif token_id == markup.think_open and self._untouched:
            pieces = []
        elif token_id in self._tokenizer.hidden_ids or token_id in markup.stop_ids:
            self._characters.drop_partial()
            pieces = []
        else:
            pieces = self._take(self._characters.feed(self._tokenizer.token_bytes(token_id)))
        return self._counted(pieces)

    def finish(self, reason: FinishReason) -> tuple[Piece, ...]:
        """The remaining pieces. Unless the model ended by itself (STOP, TOOL_CALLS) a call not closed is text."""
        if self.stopped:
            return ()
        ended = reason in (FinishReason.STOP, FinishReason.TOOL_CALLS)
        pieces = self._route(self._calls.finish(ended))
        if self._reasoning is None:
            return self._counted([*pieces, *self._text.finish()])
        self._calls_in_reasoning = self._reasoning.drafted_calls if ended else 0
        return self._counted([*pieces, *self._reasoning.finish(ended)])

    def ledger_entry(
        self, opener_tokens: Sequence[int], generated_tokens: Sequence[int]
    ) -> LedgerEntry:
        """The turn's tokens, to replay it exactly; to be asked after `finish`. `opener_tokens` are Rendered.opener."""
        return make_entry(self._markup, opener_tokens, generated_tokens, self._calls_in_reasoning)

    def _take(self, text: str) -> list[Piece]:
        if not text:
            return []
        self._untouched = self._untouched and not text.strip()
        return self._route(self._calls.feed(text))

    def _route(self, items: Iterable[str | Call]) -> list[Piece]:
        channel = self._reasoning or self._text
        return [piece for item in items for piece in channel.take(item)]

    def _close_reasoning(self) -> list[Piece]:
        self._characters.drop_partial()
        self._untouched = False
        if self._reasoning is None:
            return []
        pieces = self._route(self._calls.finish(ended=False)) + self._reasoning.close()
        self._reasoning = None
        return pieces

    def _counted(self, pieces: list[Piece]) -> tuple[Piece, ...]:
        """Neighbours of one channel joined; the tokens fed since the last piece are counted on the first."""
        joined: list[Piece] = []
        for piece in pieces:
            if joined and piece.kind == joined[-1].kind != DeltaKind.TOOL_CALL:
                joined[-1] = Piece(piece.kind, joined[-1].text + piece.text)
            else:
                joined.append(piece)
        if joined:
            first = joined[0]
            joined[0] = Piece(first.kind, first.text, first.call, self._tokens)
            self._tokens = 0
        return tuple(joined)
