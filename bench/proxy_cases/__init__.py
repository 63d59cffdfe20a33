"""The rows of the proxy's table, one module a subject. Each case checks answers before it times anything."""

from bench.proxy_cases import memory, planning, recognising, simulating, turns

CASES = (
    *turns.CASES,
    *recognising.CASES,
    *planning.CASES,
    *memory.CASES,
    *simulating.CASES,
)
