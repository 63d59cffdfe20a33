"""What a scripted model says, in the form of the debug header. Knows the format of case files and how the model opens a turn."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.cases.macros import words
from tests.cases.proxy import Unsupported

THINK, CLOSE = "<think>\n", "</think>\n\n"


def dictated(emits: Sequence[Any], body: Mapping[str, Any]) -> list[Any]:
    """The pieces of a case. The generation opener has opened the reasoning already, unless the request says not to think: a
    script that thinks goes on there, another one closes it first. Errors: Unsupported.
    """
    pieces = [piece for each in emits for piece in _pieces(each)]
    if not thinks(body):
        return pieces
    first = pieces[0] if pieces else ""
    if isinstance(first, str) and first.startswith(THINK):
        return [first.removeprefix(THINK), *pieces[1:]]
    if isinstance(first, str) and first.startswith(CLOSE.strip()):
        return pieces
    return [CLOSE, *pieces]


def endless(seed: str, tokens: int, body: Mapping[str, Any]) -> list[Any]:
    """An answer that no end token cuts short: as many words as it may have tokens, which is more."""
    said = [words(seed, tokens)]
    return [CLOSE, *said] if thinks(body) else said


def thinks(body: Mapping[str, Any]) -> bool:
    arguments = body.get("chat_template_kwargs") or {}
    effort = (body.get("reasoning") or {}).get("effort") or body.get("reasoning_effort")
    return arguments.get("enable_thinking") is not False and effort != "none"


def _pieces(given: Any) -> Iterator[Any]:
    if isinstance(given, str) or "hex" in given or "fault" in given:
        yield given
        return
    match given.get("split"):
        case "characters" | "chars" | "char":
            yield from given["text"]
        case "bytes" | "byte":
            yield from ({"hex": f"{byte:02x}"} for byte in given["text"].encode())
        case "words" | "word":
            yield from (f"{word} " for word in given["text"].split(" "))
        case "none" | "whole" | None:
            yield given["text"]
        case split:
            raise Unsupported(f"model_emits split {split!r}")
