"""What the proxy adds to a turn, as an agent at the other end of a connection sees it. Knows HTTP; nothing of the proxy's inside.

Counted is all of it: from the request's first byte sent until the stream's last byte has come, over a connection that is kept
open, to a proxy process whose engine answers at once. So it holds reading and parsing the request, identity, plan, the way to
the engine process and back (with that process's reading of the prompt), the commit with its fsync, and the stream. Beside it stands
how long the proxy process really had a core: the rest is waiting, on a busy machine mostly for others.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.instant_engine import ANSWER
from bench.proxy_cases.given import ProxyBench, at, load, ms
from bench.registry import Bar, Case, Measured, WrongAnswer
from bench.served import Answered, Served, served
from bench.talks import HEAD, Talk

ITEMS, ITEM_BYTES = 250, 2_200
TALKS, TURNS = 12, 10


@dataclass(frozen=True, slots=True)
class Times:
    """Each turn, by how it came by its history: `sent` again, or `named` by previous_response_id."""

    sent: list[Answered] = field(default_factory=list)
    named: list[Answered] = field(default_factory=list)


def measure(bench: ProxyBench) -> Times:
    """One conversation after the other. In each the two sorts of turns alternate, so that what else the machine does meets both."""
    times = Times()
    with TemporaryDirectory(dir=bench.scratch) as place, served(Path(place, "data")) as proxy:
        for number in range(max(1, bench.share(TALKS))):
            converse(proxy, Talk(f"talk {number}", ITEM_BYTES), times)
    return times


def converse(proxy: Served, talk: Talk, times: Times) -> None:
    """A conversation that has grown to `ITEMS` items goes on for `TURNS` turns of each sort."""
    told = grown(proxy, talk)
    for _ in range(TURNS):
        for kept in (times.sent, times.named):
            told = go_on(proxy, talk, told, kept is times.named)
            kept.append(told)


def grown(proxy: Served, talk: Talk) -> Answered:
    """Had turn by turn, so that calls and answers are the engine's own; the last answer."""
    told = proxy.ask(talk.request())
    require(told, told.conversation, "new_conversation")
    while len(talk.items) < ITEMS - 1:
        told = go_on(proxy, talk, told, named=True)
    return told


def go_on(proxy: Served, talk: Talk, told: Answered, named: bool) -> Answered:
    """The next turn behind `told`."""
    before = len(talk.items)
    talk.hear(told.output)
    request = talk.request()
    if named:
        fresh = talk.items[before + len(told.output) :]
        request |= {"input": fresh, "previous_response_id": told.response_id}
    answered = proxy.ask(request)
    require(answered, told.conversation, "cache_hit")
    return answered


def require(told: Answered, conversation: str, reason: str) -> None:
    """Raises WrongAnswer where it isn't what the engine said, or a turn of another conversation, or wasn't taken for what it is."""
    said = told.output[0]
    words = said["name"] if said["type"] == "function_call" else said["content"][0]["text"]
    if words not in (ANSWER, HEAD["tools"][0]["name"]):
        raise WrongAnswer(f"the engine said something else than {words[:60]!r}")
    if told.conversation != conversation or not told.decision.startswith(reason):
        raise WrongAnswer(f"a turn of {conversation} should be {reason}: {told.decision}")


def row(
    name: str, what: str, limit: float, share: float, pick: Callable[[Times], list[Answered]]
) -> Case[ProxyBench]:
    """The time that `share` of the turns don't exceed."""

    def run(bench: ProxyBench) -> Measured:
        times = bench.once(measure)
        turns = pick(times)
        some = [each.seconds for each in turns]
        figure = at(some, share)
        ran = at([each.ran_s for each in turns], 0.5)
        beside = f"p50 {ms(at(some, 0.5))}, p99 {ms(at(some, 0.99))}, {ms(ran)} on a core; {load()}"
        return Measured(f"{len(some)} turns", beside, figure * 1000)

    return Case(name, what, Bar(limit, at_least=False, unit=" ms"), run)


SENT = "proxy time of a turn whose history of 250 items, 500 KB, is sent again"
NAMED = "the same with previous_response_id"
CASES = (
    row("turn-p50", f"{SENT}, p50", 8, 0.5, lambda times: times.sent),
    row("turn-p99", f"{SENT}, p99", 20, 0.99, lambda times: times.sent),
    row("continued-p50", f"{NAMED}, p50", 3, 0.5, lambda times: times.named),
)
