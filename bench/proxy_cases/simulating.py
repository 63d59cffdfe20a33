"""How long the simulator takes for all traces. Knows its command, not how it simulates."""

from bench.proxy_cases.given import ProxyBench
from bench.registry import Bar, Case, NotMeasured


def simulating(bench: ProxyBench) -> NotMeasured:
    return NotMeasured("not there yet: there is no simulator")


CASES = (
    Case("simulate", "simulate over all traces", Bar(20, at_least=False, unit=" s"), simulating),
)
