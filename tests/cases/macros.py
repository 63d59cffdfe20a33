"""The text macros of case files, and what stands for parts of earlier answers. Knows no server."""

import base64
import hashlib
import re
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

SYLLABLES = [
    first + vowel for first in "bdfgklmnprstvz" for vowel in ("aeiou" if first in "bd" else "aeio")
]
COLOURS = {"red": (220, 30, 30), "blue": (30, 30, 220), "green": (30, 180, 30)}
WORDS = re.compile(r"\{\{words:([^:{}]+):(\d+)\}\}")
IMAGE = re.compile(r"\{\{image:([^:{}]+):(\d+)x(\d+)\}\}")
REFERENCE = re.compile(r"\{\{(id|text|call):([^:{}]+)(?::(\d+))?\}\}")
LEFT_OVER = re.compile(r"\{\{[^{}]*\}\}")


class UnknownMacro(Exception):
    """A macro this runner has no value for; the message is the macro."""


class Said(Protocol):
    """What macros want to know of an earlier answer."""

    @property
    def response_id(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def call_ids(self) -> list[str]: ...
    @property
    def items(self) -> list[dict[str, Any]]: ...
    @property
    def message(self) -> dict[str, Any]: ...


def mapped(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value with each text in it changed; keys stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [mapped(each, change) for each in value]
    if isinstance(value, dict):
        return {key: mapped(each, change) for key, each in value.items()}
    return value


def with_texts(value: Any) -> Any:
    """Words and images in place of their macros."""
    return mapped(value, _texts)


def numbered(value: Any, n: int) -> Any:
    """A `generate` template for its n-th request."""
    return with_texts(mapped(value, lambda text: text.replace("{{n}}", str(n))))


def with_answers(value: Any, answers: Mapping[str, Said], model: str) -> Any:
    """A request with parts of earlier answers in their places. Errors: UnknownMacro."""
    return mapped(_spliced(value, answers), lambda text: _referred(text, answers, model))


def words(seed: str, count: int) -> str:
    """Made-up words: the same for the same seed; fewer are the beginning of more."""
    found: list[str] = []
    block = 0
    while len(found) < count:
        digest = hashlib.sha256(f"{seed}/{block}".encode()).digest()
        block += 1
        for at in range(0, 32, 4):
            syllables = (
                SYLLABLES[digest[at + 1 + x % 3] % len(SYLLABLES)]
                for x in range(1 + digest[at] % 3)
            )
            found.append("".join(syllables) + ("." if digest[at + 3] % 11 == 0 else ""))
    return " ".join(found[:count])


def image(name: str, width: int, height: int) -> str:
    """A PNG as data URI: one colour, stripes, or noise that the name seeds."""
    rows = b"".join(
        b"\0" + b"".join(_pixel(name, x, y) for x in range(width)) for y in range(height)
    )
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    png = b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)
    return "data:image/png;base64," + base64.b64encode(png).decode()


def _pixel(name: str, x: int, y: int) -> bytes:
    if name in COLOURS:
        return bytes(COLOURS[name])
    if name == "stripes":
        return bytes((255, 255, 255) if (x // 16) % 2 else (20, 20, 20))
    seed = hashlib.sha256(name.encode()).digest()
    return hashlib.sha256(seed + bytes([x % 256, y % 256])).digest()[:3]


def _chunk(kind: bytes, data: bytes) -> bytes:
    checksum = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)


def _texts(text: str) -> str:
    text = WORDS.sub(lambda found: words(found[1], int(found[2])), text)
    return IMAGE.sub(lambda found: image(found[1], int(found[2]), int(found[3])), text)


def _spliced(value: Any, answers: Mapping[str, Said]) -> Any:
    """`{"$items": step}` becomes the items of that step's output, `{"$message": step}` its message."""
    if isinstance(value, dict):
        return {key: _spliced(each, answers) for key, each in value.items()}
    if not isinstance(value, list):
        return value
    spliced: list[Any] = []
    for each in value:
        if isinstance(each, dict) and "$items" in each:
            spliced += answers[each["$items"]].items
        elif isinstance(each, dict) and "$message" in each:
            spliced.append(answers[each["$message"]].message)
        else:
            spliced.append(_spliced(each, answers))
    return spliced


def _referred(text: str, answers: Mapping[str, Said], model: str) -> str:
    def value(found: re.Match[str]) -> str:
        answer = answers[found[2]]
        if found[1] == "id":
            return answer.response_id
        return answer.text if found[1] == "text" else answer.call_ids[int(found[3])]

    text = text.replace("{{model}}", model)
    left = LEFT_OVER.search(REFERENCE.sub("", text))
    if left:
        raise UnknownMacro(left[0])
    return REFERENCE.sub(value, text)
