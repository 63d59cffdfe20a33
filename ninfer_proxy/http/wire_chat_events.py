"""Turn events → Chat Completions chunks, or one completion. Pure; knows no SSE and no clock."""

from collections.abc import Sequence
from typing import Any

from ninfer_proxy.errors import ProxyError
from ninfer_proxy.events import (
    Broken,
    Completed,
    ItemAdded,
    ItemDone,
    Progressed,
    ReasoningAdded,
    TextAdded,
    TurnEvent,
    Usage,
)
from ninfer_proxy.types import FunctionCallItem, Item, MessageItem, ReasoningItem

Payload = dict[str, Any]


def completion_id(response_id: str) -> str:
    """The completion's id: the response's under the prefix that chat clients know."""
    return "chatcmpl-" + response_id.removeprefix("resp_")


class ChatEncoder:
    """Mutable; one for each stream: it counts the tool calls."""

    def __init__(
        self, *, response_id: str, created_at: int, model: str, include_usage: bool
    ) -> None:
        self._frame = {
            "id": completion_id(response_id),
            "object": "chat.completion.chunk",
            "created": created_at,
            "model": model,
        }
        self._include_usage = include_usage
        self._calls = 0

    def start(self) -> list[Payload]:
        return [self._chunk({"role": "assistant", "content": ""})]

    def still_running(self) -> Payload:
        """Says that the turn goes on, for clients whose patience is measured in events."""
        return self._chunk({})

    def encode(self, event: TurnEvent) -> list[Payload]:
        match event:
            case Progressed() | ItemAdded():
                return []
            case TextAdded():
                return [self._chunk({"content": event.text})]
            case ReasoningAdded():
                return [self._chunk({"reasoning_content": event.text})]
            case ItemDone():
                return self._call(event.item) if isinstance(event.item, FunctionCallItem) else []
            case Completed():
                return self._end(event)
            case Broken():
                return self.broken(event.error)

    def broken(self, error: ProxyError) -> list[Payload]:
        """The end of a stream whose turn failed."""
        fields = {"message": error.message, "type": error.type, "param": error.param}
        return [{"error": {**fields, "code": error.code}}]

    def _chunk(self, delta: Payload, finish_reason: str | None = None) -> Payload:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        usage = {"usage": None} if self._include_usage else {}
        return {**self._frame, "choices": [choice], **usage}

    def _call(self, item: FunctionCallItem) -> list[Payload]:
        call = {"index": self._calls, **tool_call_object(item)}
        self._calls += 1
        return [self._chunk({"tool_calls": [call]})]

    def _end(self, event: Completed) -> list[Payload]:
        last = self._chunk({}, finish_reason_of(event)) | diagnostics_of(event)
        if not self._include_usage:
            return [last]
        return [last, {**self._frame, "choices": [], "usage": chat_usage(event.usage)}]


def completion_object(
    event: Completed, *, response_id: str, created_at: int, model: str
) -> Payload:
    """The whole completion, for clients that don't stream."""
    return {
        "id": completion_id(response_id),
        "object": "chat.completion",
        "created": created_at,
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": _message(event.output),
                "logprobs": None,
                "finish_reason": finish_reason_of(event),
            }
        ],
        "usage": chat_usage(event.usage),
        **diagnostics_of(event),
    }


def diagnostics_of(event: Completed) -> Payload:
    """Why the prompt was, or wasn't, computed again: the same field as in a response object."""
    return {"prompt_cache_diagnostics": event.body.get("prompt_cache_diagnostics")}


def _message(output: Sequence[Item]) -> Payload:
    calls = [item for item in output if isinstance(item, FunctionCallItem)]
    text = "".join(item.text for item in output if isinstance(item, MessageItem))
    reasoning = "".join(item.text for item in output if isinstance(item, ReasoningItem))
    message: Payload = {
        "role": "assistant",
        "content": text if text or not calls else None,
        "refusal": None,
    }
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = [tool_call_object(item) for item in calls]
    return message


def tool_call_object(item: FunctionCallItem) -> Payload:
    function = {"name": item.name, "arguments": item.arguments}
    return {"id": item.call_id, "type": "function", "function": function}


def finish_reason_of(event: Completed) -> str:
    """length where it was cut by a limit, tool_calls where it calls, else stop."""
    if event.status == "incomplete":
        return "length"
    calls = any(isinstance(item, FunctionCallItem) for item in event.output)
    return "tool_calls" if calls else "stop"


def chat_usage(usage: Usage) -> Payload:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
