"""Recorded requests of real clients, as they lie in tests/captures: their names, rows and headers. Knows no client and no test."""

import json
import lzma
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

CAPTURES = Path(__file__).parent / "captures"
SUFFIX = ".jsonl.xz"
KNOWN_HEADERS = Path(__file__).parent / "pure" / "golden" / "headers.json"
_OF_THE_CONNECTION = re.compile(
    r"accept|connection|content-|authorization|host$|upgrade|sec-|x-stainless-"
)


def names() -> list[str]:
    """Such as "openclaw/a_nocont"."""
    files = CAPTURES.glob(f"*/*{SUFFIX}")
    return sorted(str(path.relative_to(CAPTURES)).removesuffix(SUFFIX) for path in files)


def rows(name: str) -> list[dict[str, Any]]:
    """One dictionary a request, in the order of the file."""
    with lzma.open(CAPTURES / f"{name}{SUFFIX}", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def telling(headers: Iterable[str]) -> list[str]:
    """The names among a request's headers that may tell whose it is, in order: those of the connection don't."""
    names = {name.lower() for name in headers}
    return sorted(name for name in names if not _OF_THE_CONNECTION.match(name))


def known_headers(request: str) -> dict[str, list[str]]:
    """What the recorded client sends "always" and "sometimes"; a request such as "openclaw /v1/responses"."""
    known: dict[str, dict[str, list[str]]] = json.loads(KNOWN_HEADERS.read_text())
    return known[request]
