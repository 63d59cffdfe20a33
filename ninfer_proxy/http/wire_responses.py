"""Responses API request → Turn. Pure; lenient about what it doesn't know, exact about what it does. Knows no transport."""

from collections.abc import Mapping
from typing import Any

from ninfer_proxy.errors import InvalidRequest, NotFound
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
from ninfer_proxy.types import Item, ResponseId, TenantKey, Turn
from ninfer_proxy.wording import counted

_ECHO = (
    "tool_choice",
    "parallel_tool_calls",
    "max_tool_calls",
    "top_logprobs",
    "reasoning",
    "text",
    "truncation",
    "service_tier",
    "safety_identifier",
)


class CreateRequest(WireRequest):
    """Body of POST /v1/responses."""

    input: str | list[Any] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    prompt: dict[str, Any] | None = None
    max_output_tokens: TokenLimit = None
    max_tool_calls: TokenLimit = None
    reasoning: dict[str, Any] | None = None
    text: dict[str, Any] | None = None
    truncation: str | None = None
    background: bool | None = None
    include: list[str] | None = None
    top_logprobs: int | None = None
    client_metadata: dict[str, Any] | None = None
    stream_options: dict[str, Any] | None = None
    context_management: Any = None
    prompt_cache_options: Any = None
    prompt_cache_retention: Any = None


def parse_create(
    body: Any,
    *,
    headers: Mapping[str, str],
    tenant: TenantKey,
    now: float,
    defaults: WireDefaults,
) -> Turn:
    """The turn that a parsed JSON body asks for. `headers` have lower-case names, `now` is Unix seconds.

    Errors: InvalidRequest with `param`, ModelNotFound, NotFound for a conversation or prompt that can't exist here.
    """
    request = validate(CreateRequest, body)
    _refuse_what_cannot_be(request)
    warnings = unknown_fields(body, CreateRequest.model_fields) + _not_done(request)
    effort = (request.reasoning or {}).get("effort")
    if not isinstance(effort, str | None):
        raise InvalidRequest("effort must be a string.", param="reasoning.effort")
    reasoning = reasoning_of(effort, request.chat_template_kwargs, defaults.thinking, warnings)
    tools = request.tools or []
    return Turn(
        tenant=tenant,
        client=evidence_of(request, headers, request.client_metadata),
        model=served_model(request.model, defaults),
        items=_input(request, defaults.max_items, warnings),
        received_at=now,
        instructions=request.instructions,
        tools=functions_of(tools, defaults.max_tools, warnings),
        tools_raw=tuple(tools),
        tool_choice=tool_choice_of(request.tool_choice, warnings),
        previous_response_id=ResponseId(request.previous_response_id)
        if request.previous_response_id
        else None,
        store=request.store is not False,
        stream=bool(request.stream),
        sampling=request.sampling(defaults.sampling),
        stop=request.stops(),
        max_output_tokens=request.max_output_tokens,
        thinking=reasoning.thinking,
        effort=reasoning.effort,
        preserve_thinking=reasoning.preserve,
        metadata=metadata_of(request.metadata, warnings),
        include=tuple(request.include or ()),
        warnings=capped(warnings),
        echo={name: getattr(request, name) for name in _ECHO},
    )


def _refuse_what_cannot_be(request: CreateRequest) -> None:
    """State kept under these ids would silently be missing from the prompt, and no such id was ever given out."""
    if request.conversation is not None:
        raise NotFound("There is no such conversation.", param="conversation")
    if request.prompt is not None:
        raise NotFound("There is no such prompt template.", param="prompt")


def _not_done(request: CreateRequest) -> list[str]:
    """Warnings for known fields that ask for something this server doesn't do."""
    text_format = (request.text or {}).get("format")
    kind = text_format.get("type", "text") if isinstance(text_format, Mapping) else "text"
    asked = {
        "background": bool(request.background),
        "text.format": kind != "text",
        "top_logprobs": bool(request.top_logprobs),
        "truncation": request.truncation == "auto",
        "context_management": bool(request.context_management),
    }
    return [f"{name}: not supported, ignored" for name, wanted in asked.items() if wanted]


def _input(request: CreateRequest, limit: int, warnings: list[str]) -> tuple[Item, ...]:
    if request.input is None:
        if request.previous_response_id is None:
            raise InvalidRequest("input is required.", param="input")
        return ()
    if not isinstance(request.input, str) and len(request.input) > limit:
        raise InvalidRequest(f"At most {counted(limit, 'input item')} may be sent.", param="input")
    if not request.input and not request.previous_response_id and not request.instructions:
        raise InvalidRequest("input is empty.", param="input")
    return items_of(request.input, warnings)
