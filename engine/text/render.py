"""Prompts to token ids: the ledger first, the chat template for all else. Knows no generation and no cache of state.

The template renders the prompt as a whole. The text is cut at the control tokens the template wrote (those that a
message spells are broken apart before and mended after, so they are plain text), into turns, one a message:

    <|im_start|>system … <|im_end|>\\n   <|im_start|>user … <|im_end|>\\n   <|im_start|>assistant\\n<think>\\n
    └ tools │ borders[0] … borders[1] ┘                      borders[2] ┘   └ generation opener
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from engine.api import Message, Prompt, ToolSpec
from engine.text.chat_template import ChatTemplate
from engine.text.errors import PromptError
from engine.text.ledger import entry_tokens
from engine.text.markup import Markup
from engine.text.tokenizer import Tokenizer

ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
BREAKERS = [chr(code) for code in range(0xFDD0, 0xFDF0)]
"""Noncharacters, one of which breaks control tokens that a message spells; any that the prompt lacks will do."""

Parts = list[int | str]


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt's tokens. `borders[i]` is the position behind the first i messages, `borders[-1]` is at most the position
    before the generation opener; `opener` are the last tokens, those behind its `assistant\\n`.

    A border is exact: a prompt that goes on with further messages has the same tokens up to it. So the border behind a
    tool result lies behind its `</tool_response>` (another result may join its turn) and `borders[0]` on the last token
    border within the tools block that no system text can move. The one exception: with `preserve_thinking` off a later
    user message takes the reasoning out of earlier assistant turns, and moves all borders from the first of those on.
    """

    token_ids: tuple[int, ...]
    borders: tuple[int, ...]
    opener: tuple[int, ...]


class Renderer:
    """Renders prompts of one model. Holds caches only; equal prompts give equal tokens."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate, markup: Markup) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._markup = markup
        self._openers: dict[tuple[bool, str | None, bool], tuple[int, ...]] = {}
        self._stable_prefix = lru_cache(maxsize=64)(tokenizer.stable_prefix)

    def render(self, prompt: Prompt) -> Rendered:
        """Raises PromptError when the template refuses the prompt or a message is malformed."""
        messages = [self._template_message(message) for message in prompt.messages]
        turns = self._turns(prompt, messages)
        *turns, opener_turn = turns
        groups = _groups(prompt.messages)
        head = self._head(prompt, turns, len(groups))
        tokens: list[int] = []
        borders = [self._settled_length(head)]
        if len(turns) > len(groups):
            tokens += self._tokenizer.encode_parts(turns.pop(0))
        for group, turn in zip(groups, turns, strict=True):
            borders += self._append_turn(tokens, group, turn)
        opener = self._opener(opener_turn)
        tokens += (self._markup.turn_start, *self._markup.assistant, *opener)
        return Rendered(tuple(tokens), tuple(borders), opener)

    def opener(self, prompt: Prompt) -> tuple[int, ...]:
        """The generation opener behind `assistant\\n`; of the prompt only the thinking switches matter."""
        switches = (prompt.thinking, prompt.effort, prompt.preserve_thinking)
        if switches not in self._openers:
            self._openers[switches] = self._opener(self._turns(prompt, [_ANY_USER], tools=())[-1])
        return self._openers[switches]

    def _turns(
        self,
        prompt: Prompt,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[ToolSpec] | None = None,
    ) -> list[Parts]:
        """The rendered prompt as turns of parts (control ids and texts), generation opener last."""
        specs = [_template_tool(tool) for tool in (prompt.tools if tools is None else tools)]
        breaker = self._breaker([messages, specs])
        if breaker:
            broken = partial(self._tokenizer.break_control, marker=breaker)
            messages, specs = _map_texts(messages, broken), _map_texts(specs, broken)
        text = self._template.render(
            messages, specs, prompt.thinking, prompt.effort, prompt.preserve_thinking
        )
        parts = self._tokenizer.split(text)
        if breaker:
            parts = [p if isinstance(p, int) else p.replace(breaker, "") for p in parts]
        return self._cut(parts)

    def _breaker(self, values: Any) -> str:
        """A character the prompt lacks, or nothing where no text in it spells a control token."""
        texts = list(_texts(values))
        if not any(map(self._tokenizer.has_control, texts)):
            return ""
        for candidate in BREAKERS:
            if not any(candidate in text for text in texts):
                return candidate
        raise PromptError(
            "the prompt holds control tokens and every noncharacter from U+FDD0 to U+FDEF"
        )

    def _cut(self, parts: Parts) -> list[Parts]:
        turns: list[Parts] = []
        for part in parts:
            if part == self._markup.turn_start:
                turns.append([])
            elif not turns:
                raise PromptError("the chat template writes text before the first turn")
            turns[-1].append(part)
        return turns

    def _opener(self, turn: Parts) -> tuple[int, ...]:
        header = turn[1] if len(turn) > 1 else ""
        if not isinstance(header, str) or not header.startswith("assistant\n"):
            raise PromptError("the chat template does not open an assistant turn at the end")
        rest = header.removeprefix("assistant\n")
        return tuple(self._tokenizer.encode_parts([rest, *turn[2:]]))

    def _append_turn(self, tokens: list[int], group: Sequence[Message], turn: Parts) -> list[int]:
        """Appends one turn's tokens; the borders behind its messages."""
        entry = group[0].ledger if group[0].role == "assistant" else None
        if entry is not None and entry.tokenizer_id == self._markup.tokenizer_id:
            dropped = self._markup.think_open is not None and self._markup.think_open not in turn
            kept = entry_tokens(self._markup, entry, dropped)
            tokens += (self._markup.turn_start, *self._markup.assistant, *kept)
            tokens += self._tokenizer.encode_parts(turn[_end_of(turn, self._markup.turn_end) :])
            return [len(tokens)]
        if group[0].role == "tool":
            return self._append_results(tokens, len(group), turn)
        tokens += self._tokenizer.encode_parts(turn)
        return [len(tokens)]

    def _append_results(self, tokens: list[int], count: int, turn: Parts) -> list[int]:
        """Tool results share a turn; each border lies behind the result's closer, or before the turn if there is none."""
        start = len(tokens)
        borders: list[int] = []
        for part in turn:
            tokens += self._tokenizer.encode_parts([part])
            if part == self._markup.response_close:
                borders.append(len(tokens))
        return borders if len(borders) == count else [start] * count

    def _head(self, prompt: Prompt, turns: Sequence[Parts], groups: int) -> Parts:
        """What the prompt begins with whatever its messages are, without the turn's end; empty if there is nothing."""
        leading = bool(prompt.messages) and ROLES[prompt.messages[0].role] == "system"
        if len(turns) == groups + 1 and not leading:
            return turns[0][: _end_of(turns[0], self._markup.turn_end) - 1]
        if len(turns) != groups:
            raise PromptError("the chat template does not give each message a turn of its own")
        if not leading:
            return []
        bare = self._turns(prompt, [_ANY_USER])
        if len(bare) != 3:
            return []
        head = bare[0][: _end_of(bare[0], self._markup.turn_end) - 1]
        return head if _begins_with(turns[0], head) else []

    def _settled_length(self, head: Parts) -> int:
        """Tokens of `head` that stay the same whatever text follows it."""
        if not head:
            return 0
        last = head[-1]
        settled = 1 if isinstance(last, int) else self._stable_prefix(last)
        return len(self._tokenizer.encode_parts(head[:-1])) + settled

    def _template_message(self, message: Message) -> dict[str, Any]:
        role = ROLES.get(message.role)
        if role is None:
            raise PromptError(f"unknown message role {message.role!r}")
        entry = message.ledger
        if role == "assistant" and entry and entry.tokenizer_id == self._markup.tokenizer_id:
            return {"role": role, "content": "x", "reasoning_content": "x"}  # its tokens are known
        result: dict[str, Any] = {"role": role, "content": message.text}
        if message.reasoning is not None:
            result["reasoning_content"] = message.reasoning
        if message.tool_calls:
            result["tool_calls"] = [
                {
                    "id": call.call_id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": _arguments(call.arguments)},
                }
                for call in message.tool_calls
            ]
        if message.tool_call_id is not None:
            result["tool_call_id"] = message.tool_call_id
        return result


_ANY_USER = {"role": "user", "content": "x"}


def _template_tool(tool: ToolSpec) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    return {"type": "function", "function": {**function, "parameters": dict(tool.parameters)}}


def _arguments(text: str) -> dict[str, Any]:
    """A call's arguments as the mapping templates expect; what is no JSON object is shown as it is, under `arguments`."""
    try:
        value = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        value = text
    return value if isinstance(value, dict) else {"arguments": value}


def _groups(messages: Sequence[Message]) -> list[list[Message]]:
    """Messages by turn: consecutive tool results share one."""
    groups: list[list[Message]] = []
    for message in messages:
        if groups and message.role == "tool" and groups[-1][0].role == "tool":
            groups[-1].append(message)
        else:
            groups.append([message])
    return groups


def _end_of(turn: Parts, turn_end: int) -> int:
    """Index behind the last end token of a turn. Raises PromptError when the template doesn't close it."""
    for index in range(len(turn), 0, -1):
        if turn[index - 1] == turn_end:
            return index
    raise PromptError("the chat template leaves a turn open")


def _begins_with(turn: Parts, head: Parts) -> bool:
    """Whether `turn` starts with the parts of `head`, of which the last may go on."""
    if len(turn) < len(head) or turn[: len(head) - 1] != head[:-1]:
        return False
    longer, last = turn[len(head) - 1], head[-1]
    if isinstance(last, str) and isinstance(longer, str):
        return longer.startswith(last)
    return longer == last


def _texts(value: Any) -> Iterator[str]:
    """Every string in a template value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(key)
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """A copy of a template value with every string changed, keys included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {_map_texts(key, change): _map_texts(inner, change) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_map_texts(inner, change) for inner in value]
    return value
