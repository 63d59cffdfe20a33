"""Recorded requests of real clients, as they lie in tests/captures: their names and rows. Knows no client and no test."""

import json
import lzma
from pathlib import Path
from typing import Any

CAPTURES = Path(__file__).parent / "captures"
SUFFIX = ".jsonl.xz"


def names() -> list[str]:
    """Such as "openclaw/a_nocont"."""
    files = CAPTURES.glob(f"*/*{SUFFIX}")
    return sorted(str(path.relative_to(CAPTURES)).removesuffix(SUFFIX) for path in files)


def rows(name: str) -> list[dict[str, Any]]:
    """One dictionary a request, in the order of the file."""
    with lzma.open(CAPTURES / f"{name}{SUFFIX}", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
