"""In which order prompts are served, in lanes and while they wait for one. Pure.

Shortest first. What is given to a later arrival counts as overtaking; the patience of a prompt is what it has left less what overtook
it, and once that is used up it goes before all that came after it. So a prompt is overtaken by about its own length at most.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Waiter:
    """One prompt in the queue: tokens it will compute, tokens that overtook it, its number in order of arrival."""

    estimate: int
    overtaken: int
    arrival: int


def patience(remaining: int, overtaken: int) -> int:
    return max(remaining - overtaken, 0)


def service_key(remaining: int, overtaken: int, arrival: int) -> tuple[int, int]:
    """Ascending order of service."""
    return (patience(remaining, overtaken), arrival)


def next_in_line(queue: Sequence[Waiter]) -> int | None:
    """Place in `queue` of the one to be served next. What gets a lane is computed whole, so it may pass an earlier arrival only if that has
    the patience for all of it. O(n log n).
    """
    allowed: list[int] = []
    least: int | None = None
    for place in sorted(range(len(queue)), key=lambda each: queue[each].arrival):
        waiter = queue[place]
        if least is None or waiter.estimate <= least:
            allowed.append(place)
        own = patience(waiter.estimate, waiter.overtaken)
        least = own if least is None else min(least, own)
    return min(allowed, key=lambda each: _key(queue[each]), default=None)


def _key(waiter: Waiter) -> tuple[int, int]:
    return service_key(waiter.estimate, waiter.overtaken, waiter.arrival)
