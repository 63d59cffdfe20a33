"""The rows of the table, one module a subject. Each case checks answers before it times anything."""

from bench.cases import admission, decode, intrusion, memory, prefill, restore, together

CASES = (
    *prefill.CASES,
    *decode.CASES,
    *restore.CASES,
    *together.CASES,
    *intrusion.CASES,
    *admission.CASES,
    *memory.CASES,
)
