"""What a proxy process takes in main memory with many conversations stored, each holding a slot. Knows /proc and HTTP.

Counted is the whole process, not the growth alone; beside it stands what one takes that has stored nothing.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.proxy_cases.given import ProxyBench
from bench.proxy_cases.recognising import MANY, NEXT, many
from bench.proxy_cases.turns import require
from bench.registry import Bar, Case, Measured
from bench.served import Served, served
from bench.stored import talk
from bench.talks import HEAD

MB = 1_000_000
TURNS = 200


def memory(bench: ProxyBench) -> Measured:
    with TemporaryDirectory(dir=bench.scratch) as place, served(Path(place, "data")) as proxy:
        empty = proxy.resident_bytes()
    stored = bench.share(MANY)
    with served(bench.once(many)) as proxy:
        converse(proxy, stored, bench.share(TURNS))
        whole = proxy.resident_bytes()
    return Measured(f"{stored} conversations", f"{empty / MB:.0f} MB with none stored", whole / MB)


def converse(proxy: Served, stored: int, turns: int) -> None:
    """A turn each of conversations from all over the store."""
    for number in numbers(stored, turns):
        request = {**HEAD, "input": [*talk(number), NEXT]}
        told = proxy.ask(request, **{"x-session-id": f"session-{number}"})
        require(told, f"conv_{number}", "")


def numbers(stored: int, turns: int) -> Iterator[int]:
    step = max(2, stored // turns // 2 * 2)
    return iter(range(0, stored, step))


CASES = (
    Case(
        "memory",
        "resident memory of the proxy with 10,000 conversations of 200 items stored",
        Bar(150, at_least=False, unit=" MB"),
        memory,
    ),
)
