"""Traces of real agents (block hashes, sizes, times) → requests. Knows that format, no policy.

A trace has neither items nor words, so they are made up: an item ends where a prompt or an answer ended, and its words name its
tokens. What two prompts have in common is what their block hashes say; an answer counts as replayed where the next prompt
appends at least as many tokens as it has, and a longer prompt with another head has the same items under it. Its requests name their session as Claude Code does, from which the traces are.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ninfer_proxy.identity.canonical import digest
from ninfer_proxy.identity.resolve import identify
from ninfer_proxy.prompt import build_prompt, cut_turns, layout, message_counts
from ninfer_proxy.simulate.line import Line
from ninfer_proxy.simulate.request import Request, message_borders
from ninfer_proxy.types import (
    ClientEvidence,
    FunctionCallItem,
    FunctionOutputItem,
    Item,
    MessageItem,
    TenantKey,
    ToolSpec,
    Turn,
)


@dataclass(frozen=True, slots=True)
class _Row:
    """One request of a trace. `agent` is None on the main line; `tools` and `head` are positions where those end."""

    conversation: str
    agent: str | None
    begins: float
    ends: float
    tokens: int
    answer_tokens: int
    calls_tools: bool
    brings_results: bool
    blocks: tuple[int, ...]
    tools: int
    head: int


@dataclass(frozen=True, slots=True)
class _Piece:
    """An item: where it ends, what it says, and the row whose answer it is (None: what a client said; `result` of a tool)."""

    end: int
    words: str = ""
    answer_of: int | None = None
    result: bool = False


@dataclass(frozen=True, slots=True)
class _Known:
    """A row that has been read: its prompt, its pieces behind the head."""

    row: _Row
    line: Line
    pieces: tuple[_Piece, ...]


def trace_requests(name: str, trace: Mapping[str, Any], root: Line) -> list[Request]:
    """The requests of one trace in order of time, from 0 on; `root` stands for the tenant. Errors: KeyError, TypeError, ValueError
    where it isn't a trace.
    """
    rows = sorted(_rows(name, None, trace, 0.0), key=lambda row: row.begins)
    reader = _Reader(name, int(trace["block_size"]), root)
    return [reader.read(row) for row in rows]


def _rows(
    conversation: str, agent: str | None, stream: Mapping[str, Any], start: float
) -> Iterator[_Row]:
    """A stream's rows, its sub-agents' behind them. A sub-agent's row stands at the moment it was done."""
    tools = int(stream["tool_tokens"])
    own = [raw for raw in stream["requests"] if raw["type"] != "subagent"]
    for index, raw in enumerate(own):
        begins = start + float(raw["t"])
        later = start + float(own[index + 1]["t"]) if index + 1 < len(own) else float("inf")
        yield _Row(
            conversation=conversation,
            agent=agent,
            begins=begins,
            ends=max(begins, min(begins + float(raw.get("api_time") or 0.0), later)),
            tokens=int(raw["in"]),
            answer_tokens=int(raw["out"]),
            calls_tools=raw.get("stop") == "tool_use",
            brings_results="tool_result" in raw.get("input_types", ()),
            blocks=tuple(raw["hash_ids"]),
            tools=tools,
            head=tools + int(stream["system_tokens"]),
        )
    for raw in stream["requests"]:
        if raw["type"] == "subagent":
            began = max(start, start + float(raw["t"]) - float(raw["duration_ms"]) / 1000)
            name = str(raw["agent_id"])
            yield from _rows(f"{conversation}/{name}", name, raw, began)


class _Reader:
    """Mutable: what of one trace has been read so far."""

    def __init__(self, name: str, block_tokens: int, root: Line) -> None:
        self._name = name
        self._block_tokens = block_tokens
        self._root = root
        self._known: list[_Known] = []

    def read(self, row: _Row) -> Request:
        nearest, shared = self._nearest(row)
        known = self._continue(row, nearest, shared)
        self._known.append(known)
        return self._request(known, len(self._known) - 1)

    def _nearest(self, row: _Row) -> tuple[int | None, int]:
        """(the earlier row whose prompt this one has most in common with, blocks in common); of equal ones the latest. Where none has
        any, the latest of its conversation.
        """
        best, most = None, 0
        for index, known in enumerate(self._known):
            blocks = _common(known.row.blocks, row.blocks)
            own = known.row.conversation == row.conversation
            if blocks >= most and (blocks > 0 or own):
                best, most = index, blocks
        return best, most

    def _continue(self, row: _Row, nearest: int | None, blocks: int) -> _Known:
        line, pieces = self._root, tuple[_Piece, ...]()
        if nearest is not None:
            line, pieces = self._kept(row, nearest, blocks)
        if row.tokens > line.end:
            line = self._grown(line, row, f"{self._name}#{len(self._known)}")
            if nearest is not None and self._answers_anew(row, nearest, pieces):
                pieces = (*pieces, _Piece(line.end - 1, answer_of=nearest))
            begin = max(row.head, pieces[-1].end if pieces else 0)
            said = _words(line, begin, line.end)
            pieces = (*pieces, _Piece(line.end, said, result=row.brings_results))
        return _Known(row, line, pieces)

    def _kept(self, row: _Row, nearest: int, blocks: int) -> tuple[Line, tuple[_Piece, ...]]:
        """What the row's prompt has of that earlier one."""
        earlier = self._known[nearest]
        if blocks == len(earlier.row.blocks) and row.tokens >= earlier.row.tokens:
            pieces = self._answered_pieces(row, nearest)
            return earlier.line if pieces == earlier.pieces else self._answered(nearest), pieces
        kept = min(blocks * self._block_tokens, row.tokens, earlier.row.tokens)
        if 0 < kept <= earlier.row.head < kept + self._block_tokens:
            # The block that the head ends in has other words behind it.
            kept = min(earlier.row.head, row.tokens)
        line = earlier.line.cut(kept)
        if kept < row.head and _carries_on(row, earlier.row):
            return line, self._answered_pieces(row, nearest)
        return line, tuple(each for each in earlier.pieces if each.end <= kept)

    def _answered_pieces(self, row: _Row, nearest: int) -> tuple[_Piece, ...]:
        """All pieces of the earlier row, its answer too if the row has room for it."""
        earlier = self._known[nearest]
        end = earlier.row.tokens + earlier.row.answer_tokens
        if earlier.row.answer_tokens == 0 or end > row.tokens:
            return earlier.pieces
        return (*earlier.pieces, _Piece(end, answer_of=nearest))

    def _answers_anew(self, row: _Row, nearest: int, pieces: Sequence[_Piece]) -> bool:
        """Is this an append whose answer was written otherwise (its reasoning left out, say)? What follows the answer is short then."""
        earlier = self._known[nearest]
        appended = row.tokens - earlier.row.tokens
        return pieces == earlier.pieces and 1 < appended < earlier.row.answer_tokens

    def _grown(self, line: Line, row: _Row, content: str) -> Line:
        """The line with the row's new tokens: those of tools and instructions, if any, are runs of their own."""
        for part, end in (("tools", row.tools), ("system", row.head), ("", row.tokens)):
            line = line.extended(content + part, min(end, row.tokens) - line.end)
        return line

    def _answered(self, index: int) -> Line:
        """The prompt of a row with its answer."""
        known = self._known[index]
        return known.line.extended(f"{self._name}#{index}answer", known.row.answer_tokens)

    def _request(self, known: _Known, index: int) -> Request:
        row, line = known.row, known.line
        pieces = [piece for piece in known.pieces if piece.end > row.head]
        items = tuple(self._items(pieces))
        turn = self._turn(known, items)
        groups = cut_turns(items, {})
        counts = message_counts(turn, items, groups)
        ends = [min(row.head, line.end), *(piece.end for piece in pieces)]
        answers = [self._known[piece.answer_of] for piece in pieces if piece.answer_of is not None]
        answer = digest(self._answer(index))
        return Request(
            conversation=row.conversation,
            begins=row.begins,
            ends=row.ends,
            turn=turn,
            identity=identify(turn, items),
            line=line,
            whole=self._answered(index),
            borders=message_borders(ends, counts, min(row.tools, line.end)),
            counts=counts,
            layout=layout(build_prompt(turn, items, groups, thinking=True)),
            output=() if answer is None or row.answer_tokens == 0 else (answer,),
            calls_tools=row.calls_tools,
            named=tuple(dict.fromkeys(each.row.conversation for each in answers)),
        )

    def _items(self, pieces: Iterable[_Piece]) -> Iterator[Item]:
        call = ""
        for piece in pieces:
            if piece.answer_of is not None:
                item = self._answer(piece.answer_of)
                call = item.call_id if isinstance(item, FunctionCallItem) else ""
                yield item
            elif piece.result and call:
                yield FunctionOutputItem(call, piece.words, {})
            else:
                yield MessageItem("user", piece.words, {})

    def _answer(self, index: int) -> Item:
        if self._known[index].row.calls_tools:
            call = f"call_{self._name}_{index}"
            return FunctionCallItem(call, "tool", f'{{"answer": "{self._name}#{index}"}}', {})
        return MessageItem("assistant", f"answer {self._name}#{index}", {})

    def _turn(self, known: _Known, items: tuple[Item, ...]) -> Turn:
        row, line = known.row, known.line
        headers = {"x-claude-code-session-id": self._name}
        if row.agent is not None:
            headers["x-claude-code-agent-id"] = row.agent
        return Turn(
            tenant=TenantKey("trace"),
            client=ClientEvidence(headers=headers, user_agent="claude-cli/2"),
            model="trace",
            items=items,
            received_at=row.begins,
            instructions=_words(line, row.tools, row.head),
            tools=(ToolSpec("tool", _words(line, 0, row.tools), {}),),
        )


def _carries_on(row: _Row, earlier: _Row) -> bool:
    """Is a prompt whose head is another one the same history and more? Block hashes can't tell: they stand for all before them."""
    return row.conversation == earlier.conversation and row.tokens > earlier.tokens


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many blocks two prompts begin with. An id stands for all up to its block, so equality doesn't come back."""
    shorter = range(min(len(one), len(other)))
    return bisect_left(shorter, True, key=lambda index: one[index] != other[index])


def _words(line: Line, begin: int, end: int) -> str:
    """Words that are equal for equal tokens: the runs of a stretch, and which part of them."""
    parts: list[str] = []
    for run in reversed(line.path):
        start = run.end - run.tokens
        if run.end <= begin:
            break
        if start < end:
            parts.append(f"{run.content}:{max(begin, start) - start}-{min(end, run.end) - start}")
    return " ".join(reversed(parts))
