"""Token lines as runs of known content: what two prompts have in common. Knows lengths and equality, no tokens.

Lines form a tree, so that equality is proved by being the same node, never by a hash:

    root ── head, 4,100 ── question, 80 ── answer, 210 ── question, 45      one line; its path are these four runs
                       └── question, 31                                     shares the head with it, 4,100 tokens

The content of a run names its tokens: of two runs behind the same line with the same content, the shorter one begins the longer.
"""

from collections.abc import Hashable
from typing import Final


class Line:
    """A node: the line from the root up to its run's end. Mutable only in that it learns its continuations."""

    __slots__ = ("_children", "content", "end", "parent", "path", "tokens")

    def __init__(self, parent: "Line | None", content: Hashable, tokens: int) -> None:
        self.parent: Final = parent
        self.content: Final = content
        self.tokens: Final = tokens
        self.end: Final[int] = tokens if parent is None else parent.end + tokens
        self.path: Final[tuple[Line, ...]] = () if parent is None else (*parent.path, self)
        self._children: dict[tuple[Hashable, int], Line] = {}

    @classmethod
    def root(cls) -> "Line":
        """An empty line. Lines of different roots have nothing in common."""
        return cls(None, None, 0)

    def extended(self, content: Hashable, tokens: int) -> "Line":
        """The line with a run behind it; itself where the run is empty."""
        if tokens <= 0:
            return self
        key = (content, tokens)
        if key not in self._children:
            self._children[key] = Line(self, content, tokens)
        return self._children[key]

    def cut(self, position: int) -> "Line":
        """The line's first `position` tokens; the whole line where it is shorter."""
        if position >= self.end:
            return self
        node = self
        while node.parent is not None and node.parent.end > position:
            node = node.parent
        assert node.parent is not None, "a position is never negative"
        return node.parent.extended(node.content, position - node.parent.end)

    def begins(self, other: "Line") -> bool:
        """Is this line the other's beginning (or all of it)?"""
        depth = len(self.path)
        if depth == 0 or depth > len(other.path):
            return depth == 0 and _root(self) is _root(other)
        there = other.path[depth - 1]
        return there is self or (
            there.parent is self.parent
            and there.content == self.content
            and there.tokens >= self.tokens
        )

    def shared(self, other: "Line") -> int:
        """How many tokens both begin with."""
        if _root(self) is not _root(other):
            return 0
        low, high = 0, min(len(self.path), len(other.path))
        while low < high:  # the last depth at which both are the same node
            middle = (low + high + 1) // 2
            if self.path[middle - 1] is other.path[middle - 1]:
                low = middle
            else:
                high = middle - 1
        common = self.path[low - 1].end if low else 0
        if low < min(len(self.path), len(other.path)):
            one, two = self.path[low], other.path[low]
            if one.content == two.content:
                return common + min(one.tokens, two.tokens)
        return common


def _root(line: Line) -> Line:
    return line if not line.path else _parent(line.path[0])


def _parent(line: Line) -> Line:
    assert line.parent is not None
    return line.parent
