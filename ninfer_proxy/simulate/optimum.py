"""The least that any policy could have prefilled: who knows all that comes, and can go on from any token it has kept. Knows the future.

Two things are given to it for nothing, so that no policy does better: what another conversation's prompt ever began with likewise, and
side requests' state. What it must pay for is a gap, the time between two requests of one conversation: with its state kept over the gap
the second one prefills less.

    begins     0    1    2    3    4    5         arcs over the begins that a gap spans, one unit of flow a slot; running
    gap A      o─────────────►                    conversations take their units by force; a begin may be passed for nothing
    gap B           o──────────────►

In slots the best choice of gaps is a flow of least cost. In bytes a part of a gap may be kept, each byte is worth as much as any other,
and so Belady's rule is exact: whenever there is too much, what is wanted last goes.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from ninfer_proxy.simulate.budget import Budget
from ninfer_proxy.simulate.cost import Cost
from ninfer_proxy.simulate.flow import Arc, cheapest
from ninfer_proxy.simulate.line import Line
from ninfer_proxy.simulate.policy import Begun
from ninfer_proxy.simulate.request import Request
from ninfer_proxy.simulate.schedule import Happens, schedule


class Optimum:
    """A policy that has read all requests beforehand. Bytes count KV only: states cost it nothing."""

    name = "optimum"
    about = "knows the future; resumes at any token"

    def __init__(self, requests: Sequence[Request], budget: Budget, cost: Cost) -> None:
        survey = _Survey()
        for _, what, index in schedule(requests):
            if what is Happens.BEGINS:
                survey.begin(requests[index])
            else:
                survey.end(requests[index])
        reused = dict(survey.free)
        if budget.slots is not None:
            kept = _kept_in_slots(survey.gaps, survey.running, budget.slots)
        else:
            assert budget.bytes is not None
            capacity = cost.tokens_in(budget.bytes)
            rooms = [max(0, capacity - taken) for taken in survey.taken]
            kept = _kept_in_tokens(survey.gaps, rooms)
        for gap, tokens in zip(survey.gaps, kept, strict=True):
            reused[gap.request] += tokens
        self._reused = reused
        self._lost = {
            gap.request
            for gap, tokens in zip(survey.gaps, kept, strict=True)
            if tokens == 0 < gap.saves
        }

    def begin(self, request: Request) -> Begun:
        return Begun(self._reused[request], evictions=int(request in self._lost))

    def end(self, request: Request) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class _Gap:
    """Keeping a conversation over begins number `first` … `last` - 1 saves `saves` tokens when `request` begins, as number `last`."""

    request: Request
    first: int
    last: int
    saves: int


class _Survey:
    """Mutable: what each request could reuse. `free[request]` costs no room; `running[i]` conversations run when number i has begun,
    whose prompts take `taken[i]` tokens that no other conversation has had.
    """

    def __init__(self) -> None:
        self.free: dict[Request, int] = {}
        self.gaps: list[_Gap] = []
        self.running: list[int] = []
        self.taken: list[int] = []
        self._others: dict[Request, int] = {}
        self._seen: dict[tuple[Line, Hashable], dict[str, int]] = {}
        self._in_flight: dict[str, list[int]] = {}
        self._rests_since: dict[str, int] = {}

    def begin(self, request: Request) -> None:
        name = request.conversation
        runs_already = name in self._in_flight
        own, others = self._reusable(request)
        self._others[request] = others
        free = max(own, others) if runs_already or request.is_side else others
        self.free[request] = free
        number = len(self.running)
        if not runs_already and name in self._rests_since and own > free:
            self.gaps.append(_Gap(request, self._rests_since[name], number, own - free))
        self._in_flight.setdefault(name, []).append(request.prompt_tokens - others)
        self.running.append(len(self._in_flight))
        self.taken.append(sum(map(max, self._in_flight.values())))
        self._see(name, request.line)

    def end(self, request: Request) -> None:
        name = request.conversation
        self._in_flight[name].remove(request.prompt_tokens - self._others.pop(request))
        if not self._in_flight[name]:
            del self._in_flight[name]
        self._rests_since[name] = len(self.running)
        self._see(name, request.whole)

    def _reusable(self, request: Request) -> tuple[int, int]:
        """The longest beginning of the prompt that its conversation has had, and that others have; one token is left to compute."""
        name = request.conversation
        own = others = 0
        for run in request.line.path:
            assert run.parent is not None
            seen = self._seen.get((run.parent, run.content), {})
            start = run.parent.end
            if own == start:
                own += min(run.tokens, seen.get(name, 0))
            if others == start:
                longest = max((tokens for each, tokens in seen.items() if each != name), default=0)
                others += min(run.tokens, longest)
        most = request.prompt_tokens - 1
        return min(own, most), min(others, most)

    def _see(self, name: str, line: Line) -> None:
        for run in line.path:
            assert run.parent is not None
            seen = self._seen.setdefault((run.parent, run.content), {})
            seen[name] = max(run.tokens, seen.get(name, 0))


def _kept_in_slots(gaps: Sequence[_Gap], running: Sequence[int], slots: int) -> list[int]:
    """Tokens saved in each gap when at most `slots` conversations run or are kept."""
    arcs = [Arc(gap.first, gap.last, 1, -gap.saves) for gap in gaps if gap.first < gap.last]
    forced = -1 - sum(gap.saves for gap in gaps)
    arcs += [Arc(at, at + 1, slots, 0) for at in range(len(running))]
    arcs += [Arc(at, at + 1, min(count, slots), forced) for at, count in enumerate(running)]
    flows = iter(cheapest(arcs, len(running) + 1, slots))
    return [gap.saves * (next(flows) if gap.first < gap.last else 1) for gap in gaps]


def _kept_in_tokens(gaps: Sequence[_Gap], rooms: Sequence[int]) -> list[int]:
    """Tokens saved in each gap when at most `rooms[i]` tokens are kept over begin number i."""
    kept = [gap.saves for gap in gaps]
    starting: dict[int, list[int]] = {}
    for index, gap in enumerate(gaps):
        if gap.first < gap.last:
            starting.setdefault(gap.first, []).append(index)
    ends = {gaps[index].last for some in starting.values() for index in some}
    latest: list[tuple[int, int]] = []
    held = 0
    for at in range(max(ends, default=0)):
        ending = [index for end, index in latest if -end == at]
        held -= sum(kept[index] for index in ending)
        latest = [entry for entry in latest if -entry[0] != at]
        heapify(latest)
        for index in starting.get(at, ()):
            heappush(latest, (-gaps[index].last, index))
            held += kept[index]
        while held > rooms[at]:
            end, index = heappop(latest)
            gone = min(kept[index], held - rooms[at])
            kept[index] -= gone
            held -= gone
            if kept[index] > 0:
                heappush(latest, (end, index))
    return kept
