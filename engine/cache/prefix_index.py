"""Which stored token lines a prompt shares its beginning with. Knows tokens, tenants and where checkpoints stand.

A tree for each tenant; one edge is one full page of tokens, and the edge's key is those tokens themselves. Following an
edge therefore compares the tokens: nothing is ever believed because of a hash. A checkpoint hangs on the node of its last
full page, with the tokens of its partly filled tail beside it.

    tenant ──[64 tokens]──▶ node ──[64 tokens]──▶ node ──[64 tokens]──▶ node
                                                   └ tail of 17 tokens: checkpoint at 145
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Generic, Protocol, TypeVar

from engine.api import TenantKey
from engine.cache.pages import Page

TOKEN_BYTES = 4


class Indexed(Protocol):
    """What can hang in the tree: something that stands at a token position of a tenant's line."""

    @property
    def tenant(self) -> TenantKey: ...

    @property
    def position(self) -> int: ...


T = TypeVar("T", bound=Indexed)


class Node(Generic[T]):
    """`page` is a page with the edge's tokens for others to share; it may have died since. `entries` are by tail, `tail_sizes` how many
    there are of each length, `edges` the keys of children and tails of entries, sorted.
    """

    __slots__ = ("children", "edges", "entries", "key", "page", "parent", "tail_sizes")

    def __init__(self, parent: "Node[T] | None", key: bytes) -> None:
        self.parent = parent
        self.key = key
        self.page: Page | None = None
        self.children: dict[bytes, Node[T]] = {}
        self.entries: dict[bytes, list[T]] = {}
        self.tail_sizes: Counter[int] = Counter()
        self.edges: list[bytes] = []

    def child(self, key: bytes) -> "Node[T]":
        """The node behind the edge, made if there is none."""
        found = self.children.get(key)
        if found is None:
            found = self.children[key] = Node(self, key)
            insort(self.edges, key)
        return found

    def cut(self, key: bytes) -> None:
        del self.children[key]
        del self.edges[bisect_left(self.edges, key)]

    def hang(self, tail: bytes, entry: T) -> None:
        self.entries.setdefault(tail, []).append(entry)
        self.tail_sizes[len(tail)] += 1
        insort(self.edges, tail)

    def take_down(self, tail: bytes, entry: T) -> None:
        self.entries[tail].remove(entry)
        if not self.entries[tail]:
            del self.entries[tail]
        self.tail_sizes[len(tail)] -= 1
        if not self.tail_sizes[len(tail)]:
            del self.tail_sizes[len(tail)]
        del self.edges[bisect_left(self.edges, tail)]

    def standing(self, rest: bytes) -> Iterator[T]:
        """The entries whose tail `rest` begins with, the longest first. O(lengths of tails): at most a page's tokens."""
        for size in sorted(self.tail_sizes, reverse=True):
            if size <= len(rest):
                yield from self.entries.get(rest[:size], ())

    def shared(self, rest: bytes) -> int:
        """Most bytes of whole tokens that an edge or tail begins with as `rest` does. Sorted, the nearest neighbours share most. O(log
        edges).
        """
        at = bisect_left(self.edges, rest)
        return max(
            (shared_bytes(edge, rest) for edge in self.edges[max(0, at - 1) : at + 1]), default=0
        )


@dataclass(frozen=True, slots=True)
class Walk(Generic[T]):
    """`matched` tokens of the prompt lie on a stored line; `entries` are all that stand on the prompt's own beginning, the
    deepest first.
    """

    matched: int
    entries: tuple[T, ...]


class PrefixIndex(Generic[T]):
    """Token lines are bytes: 4 for a token. Not mutated by lookups."""

    def __init__(self, page_tokens: int) -> None:
        self._page_bytes = page_tokens * TOKEN_BYTES
        self._roots: dict[TenantKey, Node[T]] = {}
        self._places: dict[int, tuple[Node[T], bytes]] = {}

    def walk(self, tenant: TenantKey, line: memoryview) -> Walk[T]:
        """O(pages of the line + entries on its path), however many branch off."""
        root = self._roots.get(tenant)
        if root is None:
            return Walk(0, ())
        path = self._path(root, line)
        depth = (len(path) - 1) * self._page_bytes
        rest = bytes(line[depth : depth + self._page_bytes])
        matched = (depth + path[-1].shared(rest)) // TOKEN_BYTES
        return Walk(matched, tuple(self._standing(path, line)))

    def add(self, entry: T, line: memoryview, pages: Sequence[Page]) -> None:
        """Hangs `entry` at its position of `line`, offering its full pages (if it has any in memory) for sharing."""
        node = self._roots.setdefault(entry.tenant, Node(None, b""))
        end = entry.position * TOKEN_BYTES
        for number in range(end // self._page_bytes):
            key = bytes(line[number * self._page_bytes : (number + 1) * self._page_bytes])
            node = node.child(key)
        tail = bytes(line[end - end % self._page_bytes : end])
        node.hang(tail, entry)
        self._places[id(entry)] = (node, tail)
        self.offer(entry, pages)

    def offer(self, entry: T, pages: Sequence[Page]) -> None:
        """Offers the full pages among `pages`, the entry's from the first on, for sharing."""
        for node, page in zip(self._above(entry), pages, strict=False):
            node.page = page

    def line(self, entry: T) -> bytes:
        """The tokens up to the entry. O(its length)."""
        _, tail = self._places[id(entry)]
        return b"".join((*(node.key for node in self._above(entry)), tail))

    def remove(self, entry: T) -> None:
        node, tail = self._places.pop(id(entry))
        node.take_down(tail, entry)
        while node.parent is not None and not node.entries and not node.children:
            node.parent.cut(node.key)
            node = node.parent
        if node.parent is None and not node.entries and not node.children:
            del self._roots[entry.tenant]

    def shareable(self, tenant: TenantKey, line: memoryview, count: int) -> list[Page | None]:
        """For each of the line's first `count` full pages a page some entry holds with equal tokens, if there's one."""
        found: list[Page | None] = []
        node = self._roots.get(tenant)
        for number in range(count):
            if node is not None:
                key = bytes(line[number * self._page_bytes : (number + 1) * self._page_bytes])
                node = node.children.get(key)
            page = None if node is None else node.page
            found.append(page if page is not None and page.alive else None)
        return found

    def entries(self) -> list[T]:
        """Everything in the tree, found by walking it (for the integrity check)."""
        found: list[T] = []
        stack = list(self._roots.values())
        while stack:
            node = stack.pop()
            assert node.parent is None or node.entries or node.children, "an empty branch was kept"
            assert node.edges == sorted([*node.children, *_tails(node)]), "edges of a node"
            found.extend(chain.from_iterable(node.entries.values()))
            stack.extend(node.children.values())
        return found

    def _above(self, entry: T) -> list[Node[T]]:
        """The nodes of the entry's full pages, the first page's first."""
        found: list[Node[T]] = []
        node, _ = self._places[id(entry)]
        while node.parent is not None:
            found.append(node)
            node = node.parent
        return found[::-1]

    def _path(self, root: Node[T], line: memoryview) -> list[Node[T]]:
        path = [root]
        for start in range(0, len(line) - self._page_bytes + 1, self._page_bytes):
            child = path[-1].children.get(bytes(line[start : start + self._page_bytes]))
            if child is None:
                break
            path.append(child)
        return path

    def _standing(self, path: list[Node[T]], line: memoryview) -> list[T]:
        found: list[T] = []
        for depth in range(len(path) - 1, -1, -1):
            rest = bytes(line[depth * self._page_bytes : (depth + 1) * self._page_bytes])
            found.extend(path[depth].standing(rest))
        return found


def shared_bytes(left: bytes, right: bytes) -> int:
    """Bytes of whole tokens that both begin with."""
    size = min(len(left), len(right))
    difference = int.from_bytes(left[:size], "little") ^ int.from_bytes(right[:size], "little")
    if difference == 0:
        return size
    first = ((difference & -difference).bit_length() - 1) // 8
    return first - first % TOKEN_BYTES


def _tails(node: Node[T]) -> list[bytes]:
    return [tail for tail, others in node.entries.items() for _ in others]
