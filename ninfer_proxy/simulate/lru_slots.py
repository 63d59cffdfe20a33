"""A server whose slots are chosen by likeness, the least recently used one otherwise, as llama.cpp's. Knows tokens, no conversation.

A hybrid model's state can't be cut, so a slot is gone on from at its end or at one of the states left at prompts' ends, of which the
newest 32 are kept. Its cache of prompts in main memory is left out: it is a second tier, and the others have none here.
"""

from collections.abc import Sequence

from ninfer_proxy.simulate.line import Line
from ninfer_proxy.simulate.places import Place

SIMILARITY = 0.1
KEPT_STATES = 32


class LruSlots:
    name = "lru_slots"
    about = "least recently used slot, or the most similar one (llama.cpp-like)"
    shares = False

    def chosen(self, idle: Sequence[Place], prompt: Line) -> Place | None:
        like = max(idle, key=lambda place: (place.line.shared(prompt), place.used), default=None)
        if like is None or like.line.shared(prompt) <= SIMILARITY * prompt.end:
            return None
        return like

    def reusable(self, chosen: Place | None, places: Sequence[Place], prompt: Line) -> int:
        return chosen.best(prompt) if chosen else 0

    def leaves(self, place: Place, line: Line, answered: bool) -> list[Line]:
        kept = [state for state in place.states if state.begins(line) and state is not line]
        if not answered:
            kept = [state for state in kept if state is not place.line]  # the slot's end moves on
        return [*kept, line][-KEPT_STATES:]

    def worth(self, place: Place) -> tuple[int, ...]:
        return (place.used,)
