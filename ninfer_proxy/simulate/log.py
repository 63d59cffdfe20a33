"""Records of a request log → requests. Knows those records; what they stand for was found out when they were written.

Equal items are taken as equal tokens. An answer is as it was generated wherever it comes again with its length; a template adds a few tokens
around it, or drops its reasoning, and then it is another one.

    … question | opener  generated |                 the answer's run when it was made
    … question | opener  generated  closing | next   and in the next prompt: the shorter begins the longer
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from ninfer_proxy.logged import LoggedRequest
from ninfer_proxy.prompt import AssistantGroup, build_prompt, is_assistant, layout
from ninfer_proxy.simulate.line import Line
from ninfer_proxy.simulate.request import Request
from ninfer_proxy.types import (
    ClientEvidence,
    FunctionCallItem,
    FunctionOutputItem,
    Head,
    Identity,
    Item,
    ItemDigest,
    LineRole,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    TenantKey,
    Turn,
)

CLOSING_TOKENS = 8
KNOWN_SUMMARY = "This session is being continued from a previous conversation"
LIKELY_SUMMARY = "Summary of the earlier conversation"
"""Words that identity takes for what the kinds m and n stand for."""


def logged_requests(records: Iterable[LoggedRequest]) -> Iterator[Request]:
    """The requests in order of time."""
    reader = _Reader()
    for record in sorted(records, key=lambda record: record.begins):
        yield reader.read(record)


class _Reader:
    """Mutable: tenants, and the lengths of answers so far by what they say."""

    def __init__(self) -> None:
        self._roots: dict[str, Line] = {}
        self._answers: dict[tuple[str, ...], set[int]] = {}

    def read(self, record: LoggedRequest) -> Request:
        grows = (behind > before for before, behind in pairwise(record.counts))
        items = tuple(map(_item, record.items, grows))
        turn = _turn(record, items)
        base = self._line(record)
        opener = record.prompt_tokens - base.end
        output = _counted(record.output)
        self._answers.setdefault(output, set()).add(opener + record.output_tokens)
        groups = dict.fromkeys(_groups(items, record.counts))
        prompt = build_prompt(turn, items, groups, thinking=True)
        return Request(
            conversation=record.conversation,
            begins=record.begins,
            ends=record.ends,
            turn=turn,
            identity=_identity(record),
            line=base.extended(output, opener),
            whole=base.extended(output, opener + record.output_tokens),
            borders=record.borders,
            counts=record.counts,
            layout=layout(prompt, record.marks),
            output=tuple(ItemDigest(bytes.fromhex(each)) for each in output),
            calls_tools=any(each.startswith("c:") for each in record.output),
            named=record.named,
            parent=record.parent,
            is_side=record.role == LineRole.SIDE,
        )

    def _line(self, record: LoggedRequest) -> Line:
        """The prompt up to the generation opener: a run for the tools, and one for each message."""
        root = self._roots.setdefault(record.tenant, Line.root())
        line = root.extended(("tools", record.tools), record.borders[0])
        for message in range(1, len(record.borders)):
            first, behind = _items_of(message, record.counts)
            said = _counted(record.items[first:behind])
            tokens = record.borders[message] - record.borders[message - 1]
            content: object = ("head", record.instructions, message)
            if behind > record.head_items:
                content = said
                if record.items[behind - 1][0] in "acr" and not self._is_replayed(said, tokens):
                    content = (*said, tokens)
            line = line.extended(content, tokens)
        return line

    def _is_replayed(self, said: tuple[str, ...], tokens: int) -> bool:
        made = self._answers.get(said, ())
        return any(0 <= tokens - each <= CLOSING_TOKENS for each in made)


def _items_of(message: int, counts: Sequence[int]) -> tuple[int, int]:
    """Items [first, behind) of a message, the `message`-th; the instructions have none."""
    first = counts.index(message - 1) if message - 1 >= counts[0] else 0
    return first, (counts.index(message) if message in counts else 0)


def _groups(items: Sequence[Item], counts: Sequence[int]) -> Iterator[AssistantGroup]:
    """Assistant turns: each ends with the item that makes its message whole."""
    start: int | None = None
    for index, item in enumerate(items):
        if not is_assistant(item):
            continue
        start = index if start is None else start
        if counts[index + 1] > counts[index]:
            yield AssistantGroup(start, index + 1)
            start = None


def _counted(items: Iterable[str]) -> tuple[str, ...]:
    """The digests of those that count."""
    digests = (each.partition(":")[2] for each in items)
    return tuple(each for each in digests if each)


def _identity(record: LoggedRequest) -> Identity:
    digests = (each.partition(":")[2] for each in record.items[record.head_items :])
    return Identity(
        scope=record.scope,
        scope_evidence=record.evidence,
        family=record.family,
        head=Head(
            ItemDigest(bytes.fromhex(record.tools)), ItemDigest(bytes.fromhex(record.instructions))
        ),
        head_items=record.head_items,
        digests=tuple(ItemDigest(bytes.fromhex(each)) if each else None for each in digests),
        side_kind=record.side_kind,
        is_subagent=record.is_subagent,
    )


def _turn(record: LoggedRequest, items: tuple[Item, ...]) -> Turn:
    return Turn(
        tenant=TenantKey(record.tenant),
        client=ClientEvidence(),
        model="logged",
        items=items[len(items) - record.sent :],
        received_at=record.begins,
        instructions="instructions" if record.has_instructions else None,
    )


def _item(logged: str, makes_message: bool) -> Item:
    """An item of the kind, with words where identity and prompts look at them."""
    kind, _, said = logged.partition(":")
    match kind:
        case "s":
            return MessageItem("system", "instructions" if makes_message else "", {})
        case "a":
            return MessageItem("assistant", said, {})
        case "m":
            return MessageItem("user", KNOWN_SUMMARY, {})
        case "n":
            return MessageItem("user", LIKELY_SUMMARY, {})
        case "u":
            return MessageItem("user", said, {})
        case "c":
            return FunctionCallItem(said, "tool", "{}", {})
        case "o":
            return FunctionOutputItem("", said, {})
        case "r":
            return ReasoningItem("", None, {})
    return OpaqueItem(kind, {})
