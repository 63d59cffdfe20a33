"""A server that keeps blocks of tokens, least recently used ones going first, with aligned states, as vLLM's. Knows tokens, no conversation.

A hybrid model's state is kept at the last block border of each prompt and of each answer, and nowhere else. Any chain of blocks can be
read by any prompt; one that appends makes it longer, one that parts from it begins another. A chain goes as a whole: without its last
blocks it has lost the state that made it worth keeping.
"""

from collections.abc import Sequence

from ninfer_proxy.simulate.line import Line
from ninfer_proxy.simulate.places import Place
from ninfer_proxy.wording import counted

BLOCK_TOKENS = 528


class BlockLru:
    name = "block_lru"
    about = f"blocks of {counted(BLOCK_TOKENS, 'token')}, states on their borders (vLLM-like)"
    shares = True

    def chosen(self, idle: Sequence[Place], prompt: Line) -> Place | None:
        appended = [place for place in idle if place.line.begins(prompt)]
        return max(appended, key=lambda place: (place.line.end, place.used), default=None)

    def reusable(self, chosen: Place | None, places: Sequence[Place], prompt: Line) -> int:
        return max((place.best(prompt) for place in places), default=0)

    def leaves(self, place: Place, line: Line, answered: bool) -> list[Line]:
        aligned = line.cut(line.end // BLOCK_TOKENS * BLOCK_TOKENS)
        kept = [state for state in place.states if state.begins(line) and state is not aligned]
        return [*kept, aligned] if aligned.end else kept

    def worth(self, place: Place) -> tuple[int, ...]:
        return (place.used,)
