"""One request of a replayed workload: when it came, what it said of itself, which tokens its prompt is. Values only.

Times are seconds; positions count prompt tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ninfer_proxy.simulate.line import Line
from ninfer_proxy.types import Identity, ItemDigest, PromptLayout, Turn


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """`conversation` is what the workload calls the conversation; the replayed identity has to find that out by itself. It runs from
    `begins` to `ends`. `named` are conversations whose ids come back in it, `parent` that of `previous_response_id`.

    `line` is the prompt, `whole` the prompt with the answer as the next request can find it. `borders[i]` is the position behind the
    first i messages, `counts[k]` how many messages lie within the first k items. `is_side`: a side request as it was recorded.
    """

    conversation: str
    begins: float
    ends: float
    turn: Turn
    identity: Identity
    line: Line
    whole: Line
    borders: tuple[int, ...]
    counts: tuple[int, ...]
    layout: PromptLayout
    output: tuple[ItemDigest, ...]
    calls_tools: bool = False
    named: tuple[str, ...] = ()
    parent: str | None = None
    is_side: bool = False

    @property
    def prompt_tokens(self) -> int:
        return self.line.end


def message_borders(
    item_ends: Sequence[int], counts: Sequence[int], tools_end: int = 0
) -> tuple[int, ...]:
    """Positions behind each number of messages. `item_ends[k]` is the position behind the first k items (0: behind the instructions),
    `counts[k]` the number of messages that lie wholly within them; behind no message the tools end.
    """
    borders = [tools_end] * (counts[-1] + 1)
    for end, count in zip(reversed(item_ends), reversed(counts), strict=True):
        borders[count] = end  # of equal counts the first item's end stays
    if counts[0] == 0:
        borders[0] = max(tools_end, item_ends[0])
    return tuple(borders)
