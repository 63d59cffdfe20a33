"""Text of a head without what changes in it by itself: attribution lines left out, times of day hidden. Knows no request."""

from collections.abc import Collection
from dataclasses import dataclass

from ninfer_proxy.compared import Unsteady
from ninfer_proxy.identity.clients import VOLATILE
from ninfer_proxy.identity.family import Volatile

_ATTRIBUTION = frozenset({Unsteady.ATTRIBUTION})


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One stretch of a text, and what stands in its place ('': it was left out, with the end of its line)."""

    kind: Unsteady
    was: str
    written: str


def steadied(text: str, kinds: Collection[Unsteady]) -> tuple[str, tuple[Rewrite, ...]]:
    """The text with what is of these kinds rewritten, and what was. Without any, the very same text."""
    rewrites: list[Rewrite] = []
    for volatile in VOLATILE:
        if volatile.kind in kinds:
            text, some = _rewritten(text, volatile)
            rewrites += some
    return text, tuple(rewrites)


def without_attribution(text: str) -> str:
    """System text without the lines by which a client accounts for itself."""
    named = "billing" in text or "attribution" in text
    return steadied(text, _ATTRIBUTION)[0] if named else text


def volatile_at(text: str, at: int) -> Volatile | None:
    """What changes by itself at that place of the text; None if nothing known does."""
    return next(
        (
            volatile
            for volatile in VOLATILE
            if any(found.start() <= at <= found.end() for found in volatile.finds(text))
        ),
        None,
    )


def _rewritten(text: str, volatile: Volatile) -> tuple[str, list[Rewrite]]:
    kept: list[str] = []
    rewrites: list[Rewrite] = []
    end = 0
    for match in volatile.finds(text):
        kept += [text[end : match.start()], volatile.written]
        rewrites.append(Rewrite(volatile.kind, match[0], volatile.written))
        end = match.end()
        if not volatile.written and text[end : end + 1] == "\n":
            end += 1
    kept.append(text[end:])
    return "".join(kept), rewrites
