"""How a request's chain of items relates to a stored line's. Knows digests only.

stored    a b c d e          stored    a b T c d            stored    a b c d e            stored    a b T
request   a b c d e f        request   a b c d e            request   a b X d e f          request   a b c T
append: complete             T vanished: complete           edit: prefix 2, known 5        T moved: complete
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ninfer_proxy.types import ItemDigest, StoredLine


@dataclass(frozen=True, slots=True)
class Comparison:
    """`prefix` items are equal from the start. `complete`: all that is stored comes again, but for `dropped` single items
    that vanished while what follows them stayed, or that moved from the line's end to behind what is new. The request's first `known` items reach to the last one the line has too.
    `tail_kept`: the line's last item is among the request's.
    """

    line: StoredLine
    prefix: int
    complete: bool
    dropped: tuple[int, ...]
    known: int
    tail_kept: bool

    @property
    def shared(self) -> int:
        """Items in common, those behind vanished ones included."""
        return self.known if self.complete else self.prefix

    @property
    def replaced(self) -> int:
        """Stored items that the request hasn't in their place."""
        return 0 if self.complete else len(self.line.chain) - self.prefix


def compare(line: StoredLine, request: Sequence[ItemDigest]) -> Comparison:
    """The relation of a request to one line; linear in their lengths."""
    stored = line.chain
    prefix = common_prefix(stored, request)
    if prefix == len(stored):
        return Comparison(line, prefix, True, (), prefix, True)
    if (skipped := _without_vanished(stored, request, prefix)) is not None:
        dropped, known = skipped
        return Comparison(line, prefix, True, dropped, known, True)
    rest = set(stored[prefix:])
    known = next(
        (index + 1 for index in range(len(request) - 1, prefix - 1, -1) if request[index] in rest),
        prefix,
    )
    return Comparison(line, prefix, False, (), known, stored[-1] in request[prefix:])


def common_prefix(left: Sequence[bytes | str], right: Sequence[bytes | str]) -> int:
    """How many elements (items of chains, characters of texts) are equal from the start."""
    shorter = min(len(left), len(right))
    if left[:shorter] == right[:shorter]:
        return shorter
    for index, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return index
    return shorter


def _without_vanished(
    stored: Sequence[ItemDigest], request: Sequence[ItemDigest], start: int
) -> tuple[tuple[int, ...], int] | None:
    """(indices of vanished stored items, request items used up) if dropping single items makes all the rest agree.

    At the line's very end nothing follows that could agree: there the item has to come again later.
    """
    dropped: list[int] = []
    at, position = start, start
    while at < len(stored):
        if position == len(request):
            return None
        if stored[at] == request[position]:
            position += 1
        elif (at + 1 < len(stored) and stored[at + 1] == request[position]) or (
            at + 1 == len(stored) and position > 0 and stored[at] in request[position:]
        ):
            dropped.append(at)
        else:
            return None
        at += 1
    return tuple(dropped), position
