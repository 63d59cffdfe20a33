"""The C library's heap: how much freed memory the process keeps for the next step. Knows no tensors."""

import ctypes
import logging

log = logging.getLogger(__name__)

MIB = 1 << 20
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""mallopt's own numbers (malloc.h of glibc)."""

KEPT_BYTES = 256 * MIB
"""Free memory at the heap's end that is kept; beyond it the heap shrinks. A step's tensors fit, and it's all the process may
hold in vain."""

HEAP_BLOCK_BYTES = (128 * MIB, 32 * MIB)
"""Blocks up to this size come from the heap; larger ones are mapped and given back one by one. Older libraries take no more than
the second."""


def keep_freed_memory() -> None:
    """From now on freed blocks stay in the process; call it when what lasts (weights, pools) has been allocated.

    glibc returns a step's large tensors to the system and asks for them again in the next, so that each page is faulted in and
    cleared anew. Other C libraries have no such switch and are left as they are.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        log.info("this C library decides alone what it gives back to the system")
        return
    if any(mallopt(MMAP_THRESHOLD, size) for size in HEAP_BLOCK_BYTES):
        mallopt(TRIM_THRESHOLD, KEPT_BYTES)
