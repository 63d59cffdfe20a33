"""Items → digests that are equal for equal meaning, however a client spelled them. Knows items, not whose they are.

What doesn't count: ids, status, annotations, log probabilities, cache marks, nulls, how parts are cut, how JSON arguments are
written, white space around assistant text, lines in system text that only attribute the client.
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from blake3 import blake3

from ninfer_proxy.identity.volatile import without_attribution
from ninfer_proxy.items import SYSTEM_ROLES, TEXT_PARTS, call_key
from ninfer_proxy.types import (
    FunctionCallItem,
    FunctionOutputItem,
    Head,
    Item,
    ItemDigest,
    ItemReference,
    MessageItem,
    ToolSpec,
)

DIGEST_BYTES = 16

_FRACTION = re.compile(r"\d(?:\.\d|[eE][+-]?\d)")
_DATA_URI = re.compile(r"data:[^,]*;base64,", re.IGNORECASE)
_MEDIA_KINDS = {"image_url": "image", "input_image": "image", "image": "image"}
_MEDIA_SOURCES = ("image_url", "url", "file_data", "data", "file_url", "file_id")


def digest(item: Item) -> ItemDigest | None:
    """The digest of one item by itself; None for items that don't count (reasoning, unknown types, empty answers).

    An output by itself is taken to answer the call just before it; `digests` knows better.
    """
    if isinstance(item, MessageItem):
        return _message(item)
    if isinstance(item, FunctionCallItem):
        return _hash(b"call", item.name.encode(*_UTF8), arguments(item.arguments))
    if isinstance(item, FunctionOutputItem):
        return _output(item, 0)
    if isinstance(item, ItemReference):
        return _hash(b"reference", item.item_id.encode(*_UTF8))
    return None


def digests(
    items: Sequence[Item], known: Sequence[ItemDigest | None] = ()
) -> tuple[ItemDigest | None, ...]:
    """Digests of a whole history, of which those of the first items may be known. Call ids don't count, but which call an output
    answers does: it is told by how many calls back.

    calls     A  B            C
    outputs         b(0) a(1)    c(0)
    """
    calls = back = 0
    open_calls: dict[str, list[int]] = {}
    found: list[ItemDigest | None] = []
    for index, item in enumerate(items):
        if isinstance(item, FunctionCallItem):
            open_calls.setdefault(call_key(item.call_id), []).append(calls)
            calls += 1
        if isinstance(item, FunctionOutputItem):
            waiting = open_calls.get(call_key(item.call_id))
            back = calls - 1 - waiting.pop(0) if waiting else 0
        if index < len(known):
            found.append(known[index])
        elif isinstance(item, FunctionOutputItem):
            found.append(_output(item, back))
        else:
            found.append(digest(item))
    return tuple(found)


def group_digest(group: Sequence[ItemDigest | None]) -> ItemDigest:
    """One digest for the output items of an assistant turn; items that don't count change nothing."""
    return _hash(b"group", *(each for each in group if each is not None))


def head_length(items: Sequence[Item]) -> int:
    """How many leading items are system or developer messages."""
    for index, item in enumerate(items):
        if not isinstance(item, MessageItem) or item.role not in SYSTEM_ROLES:
            return index
    return len(items)


def head_digest(
    tools: Sequence[ToolSpec], instructions: str | None, leading: Sequence[Item]
) -> Head:
    """The head of a conversation. Tools are a set; instructions and leading system items are one sequence of texts."""
    specs = sorted(_json([spec.name, spec.description, spec.parameters]) for spec in tools)
    texts = [_text("system", without_attribution(instructions or ""), ()), *map(digest, leading)]
    return Head(tools=_hash(b"tools", *specs), instructions=group_digest(texts))


def counted_text(item: Item) -> str:
    """The part of an item's text that its digest is made of."""
    if isinstance(item, FunctionCallItem):
        return arguments(item.arguments).decode(*_UTF8)
    if isinstance(item, FunctionOutputItem):
        return item.text
    if not isinstance(item, MessageItem):
        return ""
    if item.role == "assistant":
        return item.text.strip()
    return without_attribution(item.text) if item.role in SYSTEM_ROLES else item.text


def _message(item: MessageItem) -> ItemDigest | None:
    role = "system" if item.role in SYSTEM_ROLES else item.role
    return _text(role, counted_text(item), _media(item.raw.get("content")))


def _text(role: str, text: str, media: Sequence[bytes]) -> ItemDigest | None:
    if role != "user" and not text and not media:
        return None
    return _hash(b"message", role.encode(*_UTF8), text.encode(*_UTF8), *media)


def _output(item: FunctionOutputItem, back: int) -> ItemDigest:
    media = _media(item.raw.get("output"))
    return _hash(b"output", item.text.encode(*_UTF8), str(back).encode(), *media)


def _media(content: Any) -> list[bytes]:
    """What a content list holds beside text: per part, how much text precedes it and what it shows."""
    if isinstance(content, str) or not isinstance(content, Sequence):
        return []
    found: list[bytes] = []
    text_before = 0
    for part in content:
        if not isinstance(part, Mapping):
            text_before += len(part) if isinstance(part, str) else 0
        elif part.get("type", "text") in TEXT_PARTS:
            text_before += len(part.get("text") or "")
        else:
            found.append(_hash(str(text_before).encode(), *_media_part(part)))
    return found


def _media_part(part: Mapping[str, Any]) -> tuple[bytes, ...]:
    flat = dict(part)
    for value in part.values():
        if isinstance(value, Mapping):
            flat |= value
    kind = _MEDIA_KINDS.get(str(part.get("type")), str(part.get("type")))
    source = next((flat[name] for name in _MEDIA_SOURCES if isinstance(flat.get(name), str)), None)
    if source is None:
        return kind.encode(*_UTF8), _json(part)
    detail = flat.get("detail") or "auto"
    return kind.encode(*_UTF8), _content(source), str(detail).encode(*_UTF8)


def _content(source: str) -> bytes:
    """The bytes behind a data URI, however it is written; other addresses stand for themselves."""
    match = _DATA_URI.match(source)
    if match is None:
        return source.encode(*_UTF8)
    try:
        return base64.b64decode(source[match.end() :])
    except (binascii.Error, ValueError):
        return source.encode(*_UTF8)


def arguments(text: str) -> bytes:
    """A call's arguments as sorted compact JSON; numbers as JavaScript would write them. Broken JSON stands for itself."""
    if not text.strip():
        return b"{}"
    try:
        value = _parse(text)
        return _json(_whole_numbers(value) if _FRACTION.search(text) else value)
    except (ValueError, RecursionError):
        return text.strip().encode(*_UTF8)


def _parse(text: str) -> Any:
    try:
        return orjson.loads(text)
    except (ValueError, UnicodeEncodeError):
        return json.loads(text)


def _whole_numbers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _whole_numbers(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_whole_numbers(each) for each in value]
    return value


def _json(value: Any) -> bytes:
    """Compact JSON with sorted keys. What orjson refuses (half surrogates, deep nesting, 65-bit integers) takes the slower way."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _hash(*parts: bytes) -> ItemDigest:
    """16 bytes over the parts and where they end."""
    sizes = ",".join([str(len(part)) for part in parts]).encode()
    return ItemDigest(blake3(b"\0".join((sizes, *parts))).digest(length=DIGEST_BYTES))


_UTF8 = ("utf-8", "surrogatepass")
