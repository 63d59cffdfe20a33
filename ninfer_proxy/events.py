"""What happens during one turn, as values in order. Pure; each wire format turns these into its own frames.

    Progressed*  (ItemAdded  (TextAdded | ReasoningAdded)*  ItemDone)*  (Completed | Broken)

An item is done before the next is added. `index` counts output items from 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ninfer_proxy.errors import ProxyError
from ninfer_proxy.types import Decision, Item


@dataclass(frozen=True, slots=True)
class Progressed:
    """Prompt tokens computed so far, for clients that wait on a long prefill."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class ItemAdded:
    """`raw` is the item's Responses wire form at its start (status in_progress, empty content)."""

    index: int
    raw: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TextAdded:
    index: int
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningAdded:
    index: int
    text: str


@dataclass(frozen=True, slots=True)
class ItemDone:
    """The finished item; `item.raw` is its complete wire form. A function call arrives whole (added, then done)."""

    index: int
    item: Item


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens. `input_tokens` is the whole prompt, `cached_tokens` what of it was not computed again."""

    input_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int


@dataclass(frozen=True, slots=True)
class Completed:
    """The end of a turn, sent after it is stored. `status`: completed, incomplete or cancelled; `incomplete_reason` is
    max_output_tokens for the second. `body` is the final response object in Responses form.
    """

    status: str
    incomplete_reason: str | None
    output: tuple[Item, ...]
    usage: Usage
    decision: Decision
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Broken:
    """A fault after the stream began. `body` is the response object with status failed."""

    error: ProxyError
    body: Mapping[str, Any]


TurnEvent = Progressed | ItemAdded | TextAdded | ReasoningAdded | ItemDone | Completed | Broken
