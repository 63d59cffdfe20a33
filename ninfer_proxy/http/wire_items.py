"""Input of a Responses request → items. Pure; knows the forms clients use for items, not what becomes of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from ninfer_proxy.errors import InvalidRequest
from ninfer_proxy.http.wire_common import brief
from ninfer_proxy.items import TEXT_PARTS, item_from_raw
from ninfer_proxy.types import Item, OpaqueItem

ROLES = ("user", "assistant", "system", "developer")


def items_of(
    entries: str | Sequence[Any], warnings: list[str], *, param: str = "input"
) -> tuple[Item, ...]:
    """The items of an `input` field. A string is one user message. Errors: InvalidRequest naming the item and its field.

    What the prompt can't show (unknown item types, images, files) is kept in the item and gets a warning.
    """
    if isinstance(entries, str):
        entries = [{"role": "user", "content": entries}]
    return tuple(_item(entry, f"{param}[{index}]", warnings) for index, entry in enumerate(entries))


def _item(entry: Any, path: str, warnings: list[str]) -> Item:
    if not isinstance(entry, Mapping):
        raise InvalidRequest("An item must be an object.", param=path)
    try:
        item = item_from_raw(_normal(entry))
    except InvalidRequest as error:
        raise InvalidRequest(error.message, param=f"{path}.{error.param}") from None
    if isinstance(item, OpaqueItem):
        warnings.append(f"{path}: type {brief(item.kind)} is not supported, ignored")
    warnings.extend(f"{path}: {kind} is not read" for kind in _unread(item.raw))
    return item


def _normal(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """The entry in the one form that is stored: a message has its type, and parts instead of a string."""
    if "role" not in entry or entry.get("type", "message") not in ("message", None):
        return entry
    role, content = entry["role"], entry.get("content")
    if role not in ROLES:
        raise InvalidRequest(f"role must be one of {', '.join(ROLES)}.", param="role")
    if isinstance(content, str):
        kind = "output_text" if role == "assistant" else "input_text"
        content = [{"type": kind, "text": content}]
    return {**entry, "type": "message", "content": content}


def _unread(raw: Mapping[str, Any]) -> list[str]:
    """Types of the parts that have no text for the prompt."""
    found: list[str] = []
    for name in ("content", "output"):
        parts = raw.get(name)
        if isinstance(parts, Sequence) and not isinstance(parts, str):
            kinds = [part.get("type", "text") for part in parts if isinstance(part, Mapping)]
            found += [brief(kind) for kind in kinds if kind not in TEXT_PARTS]
    return found
