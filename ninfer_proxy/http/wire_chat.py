"""Chat Completions request → Turn. Pure; turns messages into the items the Responses API would have. Knows no transport."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ninfer_proxy.errors import InvalidRequest
from ninfer_proxy.http.wire_common import (
    TokenLimit,
    WireDefaults,
    WireRequest,
    capped,
    evidence_of,
    functions_of,
    metadata_of,
    served_model,
    tool_choice_of,
    unknown_fields,
    validate,
)
from ninfer_proxy.http.wire_items import items_of
from ninfer_proxy.http.wire_reasoning import reasoning_of
from ninfer_proxy.items import CACHE_MARKS
from ninfer_proxy.types import Item, TenantKey, Turn
from ninfer_proxy.wording import counted


class ChatRequest(WireRequest):
    """Body of POST /v1/chat/completions."""

    messages: list[Any]
    max_tokens: TokenLimit = None
    max_completion_tokens: TokenLimit = None
    n: int | None = None
    reasoning_effort: str | None = None
    response_format: dict[str, Any] | None = None
    stream_options: dict[str, Any] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """A turn and what only the chat format needs to know of its request."""

    turn: Turn
    include_usage: bool


def parse_chat(
    body: Any,
    *,
    headers: Mapping[str, str],
    tenant: TenantKey,
    now: float,
    defaults: WireDefaults,
) -> ChatTurn:
    """The turn that a parsed JSON body asks for. `headers` have lower-case names, `now` is Unix seconds.

    Errors: InvalidRequest with `param`, ModelNotFound.
    """
    request = validate(ChatRequest, body)
    if request.n not in (None, 1):
        raise InvalidRequest("Only one choice can be generated.", param="n")
    warnings = unknown_fields(body, ChatRequest.model_fields) + _not_done(request)
    reasoning = reasoning_of(
        request.reasoning_effort, request.chat_template_kwargs, defaults.thinking, warnings
    )
    tools = request.tools or []
    turn = Turn(
        tenant=tenant,
        client=evidence_of(request, headers, None),
        model=served_model(request.model, defaults),
        items=_items(request.messages, defaults.max_items, warnings),
        received_at=now,
        tools=functions_of(tools, defaults.max_tools, warnings),
        tools_raw=tuple(tools),
        tool_choice=tool_choice_of(request.tool_choice, warnings),
        store=bool(request.store),
        stream=bool(request.stream),
        sampling=request.sampling(defaults.sampling),
        stop=request.stops(),
        max_output_tokens=request.max_completion_tokens or request.max_tokens,
        thinking=reasoning.thinking,
        effort=reasoning.effort,
        preserve_thinking=reasoning.preserve,
        metadata=metadata_of(request.metadata, warnings),
        warnings=capped(warnings),
    )
    return ChatTurn(turn, bool((request.stream_options or {}).get("include_usage")))


def _not_done(request: ChatRequest) -> list[str]:
    """Warnings for known fields that ask for something this server doesn't do."""
    asked = {
        "response_format": (request.response_format or {}).get("type", "text") != "text",
        "logprobs": bool(request.logprobs),
    }
    return [f"{name}: not supported, ignored" for name, wanted in asked.items() if wanted]


def _items(messages: list[Any], limit: int, warnings: list[str]) -> tuple[Item, ...]:
    if not messages:
        raise InvalidRequest("messages is empty.", param="messages")
    if len(messages) > limit:
        raise InvalidRequest(f"At most {counted(limit, 'message')} may be sent.", param="messages")
    items: list[Item] = []
    for index, message in enumerate(messages):
        path = f"messages[{index}]"
        if not isinstance(message, Mapping):
            raise InvalidRequest("A message must be an object.", param=path)
        # One message can be several items; to the client they all have the message's place.
        for raw in _with_marks(_raw_items(message, path), message):
            items.extend(_one(raw, path, warnings))
    return tuple(items)


def _one(raw: Mapping[str, Any], path: str, warnings: list[str]) -> tuple[Item, ...]:
    try:
        found: list[str] = []
        items = items_of([raw], found, param="")
    except InvalidRequest as error:
        field = (error.param or "").removeprefix("[0]")
        raise InvalidRequest(error.message, param=path + field) from None
    warnings.extend(path + warning.removeprefix("[0]") for warning in found)
    return items


def _with_marks(
    items: Iterable[Mapping[str, Any]], message: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    """A message's items, the last of them with the message's cache marks: they stand for its end."""
    marks = {name: message[name] for name in CACHE_MARKS if name in message}
    *before, last = items
    return [*before, {**last, **marks}]


def _raw_items(message: Mapping[str, Any], path: str) -> Iterator[Mapping[str, Any]]:
    """The items that a chat message stands for, in Responses form."""
    role, content = message.get("role"), message.get("content")
    if role == "tool":
        yield {
            "type": "function_call_output",
            "call_id": _call_id(message.get("tool_call_id"), f"{path}.tool_call_id"),
            "output": content if isinstance(content, str) else _parts(content, "input_text", path),
        }
    elif role == "assistant":
        yield from _assistant_items(message, path)
    else:
        yield {
            "type": "message",
            "role": role,
            "content": content if isinstance(content, str) else _parts(content, "input_text", path),
        }


def _assistant_items(message: Mapping[str, Any], path: str) -> Iterator[Mapping[str, Any]]:
    """Reasoning, text, calls: the order they were generated in. A message without any of them is an empty text."""
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(reasoning, str) and reasoning:
        yield {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": reasoning}],
            "content": [{"type": "reasoning_text", "text": reasoning}],
        }
    content, calls = message.get("content"), message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise InvalidRequest("tool_calls must be a list.", param=f"{path}.tool_calls")
    if content or not calls:
        if not isinstance(content, str):
            content = _parts(content, "output_text", path)
        yield {"type": "message", "role": "assistant", "content": content}
    for index, call in enumerate(calls):
        yield _call(call, f"{path}.tool_calls[{index}]")


def _call(call: Any, path: str) -> Mapping[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        raise InvalidRequest("A tool call needs a function.", param=path)
    return {
        "type": "function_call",
        "call_id": _call_id(call.get("id"), f"{path}.id"),
        "name": function.get("name"),
        "arguments": function.get("arguments"),
    }


def _call_id(value: Any, path: str) -> str:
    if isinstance(value, str) and value:
        return value
    raise InvalidRequest("The id of a tool call must be a string.", param=path)


def _parts(content: Any, text_kind: str, path: str) -> list[Any]:
    """Content parts under the names the Responses API has for them."""
    if content is None:
        return [{"type": text_kind, "text": ""}]
    if not isinstance(content, list):
        raise InvalidRequest(
            "content must be a string or a list of parts.", param=f"{path}.content"
        )
    names = {"text": text_kind, "image_url": "input_image"}
    return [
        {**part, "type": names.get(str(part.get("type", "text")), part.get("type"))}
        if isinstance(part, Mapping)
        else part
        for part in content
    ]
