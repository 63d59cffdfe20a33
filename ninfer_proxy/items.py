"""Responses wire form of one item → Item. Pure; knows what each item type says, not who sent it or where it is kept.

Everything odd but understandable is accepted (agents send short forms, nulls and types of their own); what can't be
understood without guessing is InvalidRequest, whose `param` is relative to the item ("call_id", "content", ...).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ninfer_proxy.errors import InvalidRequest
from ninfer_proxy.types import (
    FunctionCallItem,
    FunctionOutputItem,
    Item,
    ItemReference,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
)

TEXT_PARTS = (
    "input_text",
    "output_text",
    "text",
    "refusal",
    "summary_text",
    "reasoning_text",
)
SYSTEM_ROLES = ("system", "developer")
NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}
"""Of a function that doesn't say."""
CACHE_MARKS = ("prompt_cache_breakpoint", "cache_control")
"""Fields by which a client marks an item or a part as the end of what its next requests begin with."""


def item_from_raw(raw: Mapping[str, Any]) -> Item:
    """The item that `raw` spells. `raw` is kept as it is, not copied. Errors: InvalidRequest."""
    kind = item_kind(raw)
    build = _BUILDERS.get(kind)
    return build(raw) if build else OpaqueItem(kind, raw)


def item_kind(raw: Mapping[str, Any]) -> str:
    """The item's type, also where a short form leaves it out. Errors: InvalidRequest."""
    kind = raw.get("type")
    if kind is None:
        if "role" in raw:
            return "message"
        if "id" in raw:
            return "item_reference"
        raise InvalidRequest("An item needs a type.", param="type")
    if not isinstance(kind, str) or not kind:
        raise InvalidRequest("An item's type must be a string.", param="type")
    return kind


def call_key(call_id: str) -> str:
    """A call id as some clients bring it back: letters and digits only (OpenClaw's chat mode drops the underscore)."""
    usual = call_id.replace("_", "")
    return usual if usual.isalnum() else "".join(filter(str.isalnum, call_id))


def content_text(content: Any, param: str) -> str:
    """Text of a content field: a string, null, or a list of parts, whose texts are joined with nothing between.

    Parts without text (images, files) add nothing here: they live in the raw form.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "".join(_parts(content, param))


def _parts(content: Any, param: str) -> list[str]:
    if isinstance(content, Sequence):
        return [_part_text(part, param) for part in content]
    raise InvalidRequest(f"{param} must be a string or a list of parts.", param=param)


def _part_text(part: Any, param: str) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise InvalidRequest(f"A part of {param} must be an object.", param=param)
    if part.get("type", "text") not in TEXT_PARTS:
        return ""
    text = part.get("refusal" if part.get("type") == "refusal" else "text")
    if text is None:
        return ""
    if not isinstance(text, str):
        raise InvalidRequest(f"A text part of {param} must hold a string.", param=param)
    return text


def _string(raw: Mapping[str, Any], *names: str) -> str:
    """The first of `names` that holds a non-empty string."""
    for name in names:
        value = raw.get(name)
        if isinstance(value, str) and value:
            return value
    raise InvalidRequest(
        f"An item of type {raw.get('type')} needs {names[0]}, a string.", param=names[0]
    )


def _message(raw: Mapping[str, Any]) -> Item:
    return MessageItem(_string(raw, "role"), content_text(raw.get("content"), "content"), raw)


def _function_call(raw: Mapping[str, Any]) -> Item:
    arguments = raw.get("arguments")
    if arguments is None:
        arguments = ""
    elif isinstance(arguments, Mapping):
        arguments = json.dumps(arguments, ensure_ascii=False)
    elif not isinstance(arguments, str):
        raise InvalidRequest("arguments must be JSON text.", param="arguments")
    return FunctionCallItem(_string(raw, "call_id", "id"), _string(raw, "name"), arguments, raw)


def _custom_call(raw: Mapping[str, Any]) -> Item:
    """A custom tool takes free text; the prompt shows it as a function with the one argument `input`."""
    arguments = json.dumps({"input": content_text(raw.get("input"), "input")}, ensure_ascii=False)
    return FunctionCallItem(_string(raw, "call_id", "id"), _string(raw, "name"), arguments, raw)


def _output(raw: Mapping[str, Any]) -> Item:
    return FunctionOutputItem(
        _string(raw, "call_id"), content_text(raw.get("output"), "output"), raw
    )


def _reasoning(raw: Mapping[str, Any]) -> Item:
    """The full text where it is given, else the summary (its parts are paragraphs)."""
    text = content_text(raw.get("content"), "content")
    if not text:
        text = "\n\n".join(_parts(raw.get("summary") or (), "summary"))
    encrypted = raw.get("encrypted_content")
    return ReasoningItem(text, encrypted if isinstance(encrypted, str) else None, raw)


def _reference(raw: Mapping[str, Any]) -> Item:
    return ItemReference(_string(raw, "id"), raw)


_BUILDERS: Mapping[str, Callable[[Mapping[str, Any]], Item]] = {
    "message": _message,
    "function_call": _function_call,
    "function_call_output": _output,
    "custom_tool_call": _custom_call,
    "custom_tool_call_output": _output,
    "reasoning": _reasoning,
    "item_reference": _reference,
}
