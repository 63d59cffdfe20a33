"""One request between the door and its sequence: tokens become its events. Knows text pieces and sequences; no memory, no queues."""

import struct
from array import array
from collections.abc import Sequence as Ordered
from dataclasses import dataclass
from typing import Protocol

from engine.api import (
    AnchorKind,
    CheckpointInfo,
    Delta,
    DeltaKind,
    Failed,
    Finished,
    FinishReason,
    Generate,
    LedgerEntry,
    Prepare,
    Prepared,
    PrepareOutcome,
    Progress,
    RejectCode,
    Rejected,
    RequestId,
    Sampling,
    Started,
)
from engine.entrance import Entry
from engine.planner.admission import Refusal
from engine.sequence import Sequence, wanted_positions


class Piece(Protocol):
    @property
    def kind(self) -> DeltaKind: ...
    @property
    def text(self) -> str: ...
    @property
    def call(self) -> tuple[str, str] | None: ...
    @property
    def tokens(self) -> int: ...


class Output(Protocol):
    """What engine.text makes of one request's tokens (engine.text.output.OutputStream)."""

    @property
    def reasoning_tokens(self) -> int: ...

    @property
    def stopped(self) -> bool: ...

    def feed(self, token_id: int) -> Ordered[Piece]: ...

    def finish(self, reason: FinishReason) -> Ordered[Piece]: ...

    def ledger_entry(
        self, opener_tokens: Ordered[int], generated_tokens: Ordered[int]
    ) -> LedgerEntry: ...


@dataclass(frozen=True, slots=True)
class Prompted:
    """A request whose prompt is tokens already. `opener` are the last of them, those of the generation opener. `banned` tokens are not
    to be sampled. `dictated` tokens take the place of sampled ones as long as there are any; None among them is a fault.
    """

    generate: Generate
    token_ids: tuple[int, ...]
    borders: tuple[int, ...]
    opener: tuple[int, ...]
    output: Output
    banned: tuple[int, ...] = ()
    dictated: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True)
class PromptedAhead:
    """A Prepare whose prompt is tokens already; `token_ids` end before the generation opener."""

    prepare: Prepare
    token_ids: tuple[int, ...]
    borders: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Turn:
    """`ledger` is there once the turn has ended; the tip's checkpoint may still be under way then."""

    prompted: Prompted
    sequence: Sequence
    stop_token_ids: frozenset[int]
    generated: int = 0
    calls: int = 0
    ledger: LedgerEntry | None = None

    def start(self, entry: Entry) -> list[Started]:
        """The answer to its first admission; a preempted sequence comes back silently."""
        if self.sequence.started:
            return []
        self.sequence.started = True
        prompted = self.prompted
        echo = prompted.generate.echo_tokens
        return [
            Started(
                request_id=self.sequence.request_id,
                prompt_tokens=self.sequence.prompt_tokens,
                reused_tokens=entry.reused,
                matched_tokens=min(entry.matched, self.sequence.prompt_tokens),
                reason=entry.reason,
                source=entry.source,
                borders=prompted.borders,
                token_ids=prompted.token_ids if echo else None,
            )
        ]

    def progress(self) -> list[Progress]:
        """How far the prompt is, as long as nothing has been generated."""
        if self.generated:
            return []
        return [Progress(self.sequence.request_id, self.sequence.computed)]

    def accept(self, sampled: int) -> None:
        """One sampled token."""
        self.sequence.append(self._said(sampled))
        self.generated += 1

    @property
    def goes_on(self) -> bool:
        """Whether the last token is followed by another, whatever its text is."""
        more = 0 < self.generated < self.sequence.output_limit and not self.sequence.closing
        is_last = self.sequence.tokens[-1] in self.stop_token_ids
        return more and not is_last and not self.prompted.generate.stop

    def tell(self) -> list[Delta]:
        """What the last token says; ends the turn's sampling where it must (then `ledger` is there)."""
        token = self.sequence.tokens[-1]
        output = self.prompted.output
        deltas = self._deltas(output.feed(token))
        if token in self.stop_token_ids or output.stopped:
            return deltas + self.end(FinishReason.STOP)
        if self.generated >= self.sequence.output_limit:
            return deltas + self.end(FinishReason.LENGTH)
        return deltas

    def _said(self, sampled: int) -> int:
        """What counts as sampled: the next token of a dictation, if there is one."""
        dictated = self.prompted.dictated
        token = dictated[self.generated] if self.generated < len(dictated) else sampled
        if token is None:
            raise RuntimeError("a fault was dictated")
        return token

    def end(self, reason: FinishReason) -> list[Delta]:
        """The remaining output, and the sequence's line brought to the form in which the turn will be replayed."""
        output = self.prompted.output
        deltas = self._deltas(output.finish(reason))
        if reason is FinishReason.STOP and self.calls:
            reason = FinishReason.TOOL_CALLS
        prompt = self.sequence.prompt_tokens
        tokens = self.sequence.tokens[prompt : prompt + self.generated].tolist()
        if tokens or reason is not FinishReason.CANCELLED:
            self.ledger = output.ledger_entry(self.prompted.opener, tokens)
            count = len(self.ledger.tokens) // 4
            turn = struct.unpack(f"<{count}I", self.ledger.tokens)
            self.sequence.close(reason, turn[len(self.prompted.opener) :])
        else:
            self.sequence.ending = reason
        return deltas

    def finished(self, checkpoints: tuple[CheckpointInfo, ...]) -> Finished:
        assert self.sequence.ending is not None
        return Finished(
            request_id=self.sequence.request_id,
            reason=self.sequence.ending,
            output_tokens=self.generated,
            reasoning_tokens=self.prompted.output.reasoning_tokens,
            reused_tokens=self.sequence.reused,
            ledger=self.ledger,
            checkpoints=checkpoints,
        )

    def failed(self, message: str) -> Failed:
        return Failed(self.sequence.request_id, message)

    def _deltas(self, pieces: Ordered[Piece]) -> list[Delta]:
        request = self.sequence.request_id
        self.calls += sum(piece.kind is DeltaKind.TOOL_CALL for piece in pieces)
        return [
            Delta(request, piece.kind, piece.text, piece.call, piece.tokens) for piece in pieces
        ]


def prepared_sequence(prompted: PromptedAhead, arrival: int) -> Sequence:
    """Wants a checkpoint at its end, whatever the anchors are; nothing of it is sampled."""
    prepare, count = prompted.prepare, len(prompted.token_ids)
    sequence = Sequence(
        request_id=prepare.request_id,
        tenant=prepare.tenant,
        continuation=prepare.continuation,
        sampling=Sampling(),
        arrival=arrival,
        tokens=array("I", prompted.token_ids),
        prompt_tokens=count,
        output_limit=0,
        wanted=wanted_positions(prepare.anchors, prepare.ladder_tokens, prompted.borders, count),
    )
    if count:
        sequence.want(count, AnchorKind.PROMPT_END)
    return sequence


def refused(request: Generate | Prepare, refusal: Refusal) -> Rejected | Prepared:
    """The only answer that the request gets."""
    if isinstance(request, Prepare):
        return Prepared(request.request_id, PrepareOutcome.REJECTED, message=refusal.message)
    return Rejected(
        request.request_id, refusal.code, refusal.message, refusal.needed, refusal.available
    )


def runs_already(request: RequestId) -> Refusal:
    """Why a request is refused that has the id of one in flight."""
    return Refusal(RejectCode.INVALID_PROMPT, f"request {request} runs already")
