"""What the policies of other servers have in common: places that hold one token line each, and rules for them. Knows no identity.

A place is a slot, a cell or a chain of blocks; the rule says which one a prompt goes on from, which states it leaves there and who
makes way. While more requests run than there are places, the surplus runs in places that are given up first.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from ninfer_proxy.simulate.budget import Budget
from ninfer_proxy.simulate.cost import Cost
from ninfer_proxy.simulate.line import Line
from ninfer_proxy.simulate.policy import Begun
from ninfer_proxy.simulate.request import Request


@dataclass(slots=True, eq=False)
class Place:
    """`states` are the beginnings of `line` that can be gone on from, oldest first; `used` counts uses of all places."""

    number: int
    line: Line
    used: int = 0
    running: bool = False
    states: list[Line] = field(default_factory=list)

    def best(self, prompt: Line) -> int:
        """The most tokens of a prompt that a state here saves; one is left to compute."""
        ends = (state.end for state in self.states if state.begins(prompt))
        return max((end for end in ends if end < prompt.end), default=0)


class Rule(Protocol):
    """`shares`: places that begin alike hold those tokens once."""

    name: str
    about: str
    shares: bool

    def chosen(self, idle: Sequence[Place], prompt: Line) -> Place | None:
        """The place that the prompt is computed in, over what lies there; None: another one."""
        ...

    def reusable(self, chosen: Place | None, places: Sequence[Place], prompt: Line) -> int: ...

    def leaves(self, place: Place, line: Line, answered: bool) -> list[Line]:
        """The place's states once it holds `line`: the prompt, or (`answered`) prompt and answer."""
        ...

    def worth(self, place: Place) -> tuple[int, ...]:
        """Idle places of least worth are given up first."""
        ...


class Places:
    """A policy: a rule at work, in at most `most` places whatever the budget. Mutable."""

    def __init__(self, rule: Rule, budget: Budget, cost: Cost, most: int | None = None) -> None:
        self.name = rule.name
        self.about = rule.about
        self._rule = rule
        self._budget = budget
        self._cost = cost
        limits = [limit for limit in (budget.slots, most) if limit is not None]
        self._most = min(limits, default=None)
        self._places: list[Place] = []
        self._of: dict[Request, Place] = {}
        self._uses = count()

    def begin(self, request: Request) -> Begun:
        prompt = request.line
        idle = [place for place in self._places if not place.running]
        chosen = self._rule.chosen(idle, prompt)
        reused = self._rule.reusable(chosen, self._places, prompt)
        place = chosen
        if place is None:
            place = Place(-1, prompt)
            self._places.append(place)
        place.running = True
        place.states = self._rule.leaves(place, prompt, answered=False)
        place.line, place.used = prompt, next(self._uses)
        self._of[request] = place
        gone = self._make_room()
        if place.number < 0:
            taken = {each.number for each in self._places}
            place.number = next(number for number in count() if number not in taken)
        return Begun(reused, place.number, tuple(gone), len(gone))

    def end(self, request: Request) -> int:
        place = self._of.pop(request)
        place.running = False
        place.states = self._rule.leaves(place, request.whole, answered=True)
        place.line, place.used = request.whole, next(self._uses)
        return len(self._make_room()) if self._budget.bytes is not None else 0

    def _make_room(self) -> list[int]:
        """Gives up idle places until the budget is kept; returns their numbers."""
        gone: list[int] = []
        idle = sorted((p for p in self._places if not p.running), key=self._rule.worth)
        for place in idle:
            if not self._is_short():
                break
            self._places.remove(place)
            gone.append(place.number)
        return gone

    def _is_short(self) -> bool:
        if self._most is not None and len(self._places) > self._most:
            return True
        if self._budget.bytes is None:
            return False
        if self._rule.shares:
            tokens = sum(run.tokens for run in {run for p in self._places for run in p.line.path})
        else:
            tokens = sum(place.line.end for place in self._places)
        states = {state for place in self._places for state in place.states}
        used = tokens * self._cost.token_bytes + len(states) * self._cost.image_bytes
        return used > self._budget.bytes
