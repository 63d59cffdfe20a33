"""How a turn ended: a value between running and settling. Knows no store."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.api import Finished, Started
from ninfer_proxy.events import Usage
from ninfer_proxy.types import Decision, Item


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a turn ended. Times are Unix seconds."""

    response: str
    created_at: float
    completed_at: float
    status: str
    output: tuple[Item, ...]
    usage: Usage
    decision: Decision
    body: Mapping[str, Any]
    started: Started
    finished: Finished
