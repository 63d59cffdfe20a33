"""The heap keeps what a step frees, where the C library can be told to."""

import ctypes
import subprocess
import sys
from typing import Any

import pytest

from engine import heap

MIB = 1 << 20

FAULTS = """
import resource, sys
from engine.heap import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
def use() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [b"x" * (size << 20) for size in (20, 40, 90)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
first = use()
print(sum(use() for _ in range(4)))
"""


class Library:
    """A C library that takes values up to `limit`; `set` holds what was set."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.set: dict[int, int] = {}

    def mallopt(self, option: int, value: int) -> int:
        if value > self._limit:
            return 0
        self.set[option] = value
        return 1


def faults(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallopt"), reason="this C library can't be told"
)
def test_freed_memory_is_not_faulted_in_again() -> None:
    assert 10 * faults("keep") < faults("leave")


@pytest.mark.parametrize(("limit", "block"), [(1 << 40, 128 * MIB), (32 * MIB, 32 * MIB)])
def test_an_older_library_takes_smaller_blocks(
    monkeypatch: pytest.MonkeyPatch, limit: int, block: int
) -> None:
    library = Library(limit)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    heap.keep_freed_memory()
    assert library.set[heap.MMAP_THRESHOLD] == block


@pytest.mark.parametrize("fault", [AttributeError, OSError, TypeError])
def test_a_library_that_cannot_be_told_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, fault: type[Exception]
) -> None:
    class Other:
        @property
        def mallopt(self) -> Any:
            raise fault

    monkeypatch.setattr(ctypes, "CDLL", lambda _: Other())
    heap.keep_freed_memory()
