"""A server with a fixed number of private cells that age doesn't wear, as NInfer's. Knows tokens, no conversation.

A prompt that goes on from a state of a cell takes that cell over; any other needs a new cell, and of those that rest the one goes that
costs least to compute again, however long ago it was used. A cell keeps its end, its prompt's end and four prompts' ends before that.
"""

from collections.abc import Sequence

from ninfer_proxy.simulate.line import Line
from ninfer_proxy.simulate.places import Place

CELLS = 12
KEPT_ENDS = 5


class PrivateCells:
    name = "private_cells"
    about = "twelve cells, the cheapest to rebuild goes (NInfer-like)"
    shares = False

    def chosen(self, idle: Sequence[Place], prompt: Line) -> Place | None:
        best = max(idle, key=lambda place: (place.best(prompt), place.used), default=None)
        return best if best is not None and best.best(prompt) > 0 else None

    def reusable(self, chosen: Place | None, places: Sequence[Place], prompt: Line) -> int:
        return chosen.best(prompt) if chosen else 0

    def leaves(self, place: Place, line: Line, answered: bool) -> list[Line]:
        kept = [state for state in place.states if state.begins(line) and state is not line]
        if answered:
            return [*kept[-KEPT_ENDS:], line]
        kept = [state for state in kept if state is not place.line]  # the cell's end moves on
        return [*kept, line][-KEPT_ENDS:]

    def worth(self, place: Place) -> tuple[int, ...]:
        return (place.line.end, place.used)
