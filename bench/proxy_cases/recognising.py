"""Whether finding out whose turn it is takes longer the more conversations are stored. Knows the runner's look, not how it looks.

Counted is all of identity in this process, over a store on disk: the request's digests, the stored lines, the ladder, the turns
that are replayed. Half of the requests name a session, whose opening words all sessions share; half name nothing.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

from bench.proxy_cases.given import ProxyBench, at, load, ms
from bench.registry import Bar, Case, Measured, WrongAnswer
from bench.stored import fill, name_of, talk, turn_of
from ninfer_proxy.backends.scripted import ScriptedBackend
from ninfer_proxy.metrics import Metrics
from ninfer_proxy.planning.policy import Policy
from ninfer_proxy.store.store import Store
from ninfer_proxy.turn.in_flight import InFlight
from ninfer_proxy.turn.runner import TurnRunner, TurnSettings
from ninfer_proxy.types import MatchKind

FEW, MANY = 100, 10_000
REQUESTS = 400
NEXT = {"role": "user", "content": "and another question"}


def few(bench: ProxyBench) -> Path:
    return _filled(bench, FEW)


def many(bench: ProxyBench) -> Path:
    """The directory with all conversations; it is made once."""
    return _filled(bench, bench.share(MANY))


def _filled(bench: ProxyBench, conversations: int) -> Path:
    data_dir = bench.scratch / f"stored-{conversations}"
    data_dir.mkdir()
    fill(data_dir, conversations)
    return data_dir


def growth(bench: ProxyBench) -> Measured:
    places = {FEW: bench.once(few), bench.share(MANY): bench.once(many)}
    return asyncio.run(_growth(places, bench.share(REQUESTS)))


async def _growth(places: Mapping[int, Path], requests: int) -> Measured:
    """`places` by the number of conversations in them."""
    sizes = tuple(places)
    stores = [await Store.open(place, clock=time.time) for place in places.values()]
    try:
        runners = [runner_over(store) for store in stores]
        # [store][sort]: seconds of requests that name a session, and of those that don't
        times: list[tuple[list[float], list[float]]] = [([], []), ([], [])]
        random = Random(0)
        for request in range(requests + 2):
            order = (0, 1) if request % 4 < 2 else (1, 0)
            for side in order:
                number = random.randrange(sizes[side] // 2) * 2 + request % 2
                seconds = await recognise(runners[side], number)
                if request > 1:
                    times[side][request % 2].append(seconds)
    finally:
        for store in stores:
            await store.close()
    return told(times)


async def recognise(runner: TurnRunner, number: int) -> float:
    """Seconds for the next turn of that conversation. Raises WrongAnswer if it isn't taken for that."""
    turn = turn_of(number, [*talk(number), NEXT])
    begun = time.perf_counter()
    found = await runner.recognise(turn)
    seconds = time.perf_counter() - begun
    if found.match.conversation != name_of(number) or found.match.kind is not MatchKind.CONTINUES:
        raise WrongAnswer(f"a turn of {name_of(number)} was taken for {found.match}")
    return seconds


def runner_over(store: Store) -> TurnRunner:
    settings = TurnSettings(Policy(), "agent", thinking=True, decide_wait_s=1.0)
    backend = ScriptedBackend()
    return TurnRunner(
        store, backend, settings, Metrics(), InFlight(), clock=time.time, new_id=lambda kind: kind
    )


def told(times: Sequence[tuple[list[float], list[float]]]) -> Measured:
    """The worse growth of the two sorts of requests counts."""
    few_sorts, many_sorts = ([at(sort, 0.5) for sort in sorts] for sorts in times)
    growths = [many / few for few, many in zip(few_sorts, many_sorts, strict=True)]
    ours = " and ".join(map(ms, many_sorts))
    return Measured(ours, f"{' and '.join(map(ms, few_sorts))}; {load()}", max(growths))


CASES = (
    Case(
        "identity-growth",
        "identity among 10,000 stored conversations of 200 items / among 100: with a session named, and without",
        Bar(1.3, at_least=False, unit="×"),
        growth,
    ),
)
