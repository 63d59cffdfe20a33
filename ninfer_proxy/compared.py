"""What is compared of two turns and told of it: heads in words, what changes in them by itself, the first difference. Pure values."""

from dataclasses import dataclass
from enum import StrEnum

from ninfer_proxy.types import Item, ToolSpec


class Unsteady(StrEnum):
    """What of a head some clients change from request to request without meaning anything by it."""

    ATTRIBUTION = "attribution"
    CLOCK = "clock"
    TOOL_ORDER = "tool_order"
    TOOL_KEYS = "tool_keys"


@dataclass(frozen=True, slots=True)
class HeadText:
    """A turn's head in words: what stands before its first item of the conversation. `leading` are its system items."""

    instructions: str | None
    tools: tuple[ToolSpec, ...]
    leading: tuple[Item, ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a request first differs from what was stored. `at` is the place, such as "tools[3].description:17",
    "instructions:412" or "input[7]:23", `told` a sentence with what a client setting could do.
    """

    at: str
    told: str
