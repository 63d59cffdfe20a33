"""What a prompt is made of: messages, their calls, tools, and turns kept as their own tokens. Knows no template and no wire.

Part of the door: clients take these from `engine.api`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Reduced = tuple[Callable[..., Any], tuple[Any, ...]]
"""How a value crosses the door. Those that a prompt has hundreds of say it themselves: what dataclasses with slots do is slow."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """The tokens of one assistant turn as the engine produced them, to be handed back when the turn is replayed.

    `tokens` are little-endian uint32: the generation opener after `<|im_start|>assistant\\n` (for example `<think>\\n`), all that was
    generated, and the closing `<|im_end|>` (supplied when generation was cut off). A turn that ended within its reasoning has
    `\\n</think>\\n\\n` supplied before that, unless the reasoning ended in tool calls that were served. `content_offset` counts the
    tokens up to the first one after the reasoning block: what remains when a template drops reasoning. `tokenizer_id`
    names the tokenizer; an entry of another tokenizer is not used.
    """

    tokens: bytes
    content_offset: int
    tokenizer_id: str

    def __reduce__(self) -> Reduced:
        return LedgerEntry, (self.tokens, self.content_offset, self.tokenizer_id)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """`arguments` is JSON text."""

    call_id: str
    name: str
    arguments: str

    def __reduce__(self) -> Reduced:
        return ToolCall, (self.call_id, self.name, self.arguments)


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message. `role` is system, developer, user, assistant or tool (then `tool_call_id` names the call).

    `ledger` is present on assistant messages that the engine itself produced and wins over text, reasoning and calls.
    """

    role: str
    text: str = ""
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    ledger: LedgerEntry | None = None

    def __reduce__(self) -> Reduced:
        fields = self.role, self.text, self.reasoning, self.tool_calls, self.tool_call_id
        return Message, (*fields, self.ledger)


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A function the model may call; `parameters` is its JSON schema, key order preserved."""

    name: str
    description: str | None
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Prompt:
    """All that decides the prompt's tokens. `effort` is a template value (xhigh, medium, low) or None for its default."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    thinking: bool = True
    effort: str | None = None
    preserve_thinking: bool = True
