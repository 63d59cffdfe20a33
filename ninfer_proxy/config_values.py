"""What a setting's value may be: each parser takes a TOML value or a string from the environment. Knows no setting.

A parser raises ValueError saying what it expects.
"""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

BYTE_UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}

Parser = Callable[[object], Any]


def text(value: object) -> str:
    if isinstance(value, str) and value:
        return value
    raise ValueError("a non-empty string")


def texts(value: object) -> tuple[str, ...]:
    """A list, or one string with commas."""
    parts = value.split(",") if isinstance(value, str) else value
    if isinstance(parts, list | tuple) and all(isinstance(part, str) and part for part in parts):
        return tuple(part.strip() for part in parts)
    raise ValueError("a list of non-empty strings")


def folder(value: object) -> Path:
    return Path(text(value)).expanduser()


def flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    raise ValueError("true or false")


def one_of(*choices: str) -> Parser:
    def parse(value: object) -> str:
        if value in choices:
            return str(value)
        raise ValueError(f"one of {', '.join(choices)}")

    return parse


def some_of(*choices: str) -> Parser:
    """Several of these, each once, as a list or one string with commas."""

    def parse(value: object) -> tuple[str, ...]:
        try:
            given = texts(value)
        except ValueError:
            given = ("",)
        if set(given) <= set(choices):
            return tuple(choice for choice in choices if choice in given)
        raise ValueError(f"a list of some of {', '.join(choices)}")

    return parse


def whole(low: int, high: int = 1 << 62) -> Parser:
    def parse(value: object) -> int:
        if isinstance(value, str) and re.fullmatch(r"-?\d+", value.strip()):
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        raise ValueError(f"a whole number from {low}" + (f" to {high}" if high < 1 << 62 else ""))

    return parse


def number(low: float, high: float = math.inf) -> Parser:
    def parse(value: object) -> float:
        try:
            parsed = float(value) if isinstance(value, str | int | float) else math.nan
        except ValueError:
            parsed = math.nan
        if low <= parsed <= high and math.isfinite(parsed) and not isinstance(value, bool):
            return parsed
        raise ValueError(f"a number from {low:g}" + (f" to {high:g}" if high < math.inf else ""))

    return parse


def size(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str):
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", value.strip().lower())
        if match and match[2] in BYTE_UNITS:
            return int(float(match[1]) * BYTE_UNITS[match[2]])
    raise ValueError('bytes, as a whole number or like "24 GiB"')
