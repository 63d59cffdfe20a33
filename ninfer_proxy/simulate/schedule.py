"""The order in which requests begin and end: a virtual clock. Knows no policy.

The clients' clock is the workload's own: a request begins when it was recorded to, whatever a policy made of the one before. So all
policies see the same events, and a faster one isn't punished with a harder workload.
"""

from collections.abc import Iterator, Sequence
from enum import Enum
from heapq import heappop, heappush

from ninfer_proxy.simulate.request import Request


class Happens(Enum):
    ENDS = 0
    BEGINS = 1


def schedule(requests: Sequence[Request]) -> Iterator[tuple[float, Happens, int]]:
    """(moment, what, index into `requests`) in order of time; of one moment ends go first, then in the order of `requests`."""
    coming: list[tuple[float, int, int]] = []
    for index, request in enumerate(requests):
        heappush(coming, (request.begins, Happens.BEGINS.value, index))
    while coming:
        now, what, index = heappop(coming)
        yield now, Happens(what), index
        if what == Happens.BEGINS.value:
            heappush(coming, (max(now, requests[index].ends), Happens.ENDS.value, index))
