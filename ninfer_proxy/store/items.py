"""Items: each once per conversation, numbered as first seen. Knows its table; nothing of what refers to it.

An item is told apart by its wire form and by how often that form has occurred before it in the same list ("yes" said twice
is two items). A client that re-sends its history therefore adds only what is new.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

from sqlalchemy import Connection, bindparam, delete, func, insert, select, text

from ninfer_proxy.items import call_key, item_from_raw
from ninfer_proxy.store.codec import (
    from_json,
    minted_item_id,
    to_json,
)
from ninfer_proxy.store.records import RecordedItem
from ninfer_proxy.store.tables import items
from ninfer_proxy.types import (
    ConversationId,
    FunctionCallItem,
    Item,
    ItemDigest,
    OpaqueItem,
    TenantKey,
)

T = TypeVar("T")

PARAMETERS = 5_000
"""Numbers named in one statement; SQLite takes 32,766 parameters."""

# The ids are a JSON array, one parameter however many they are. CROSS JOIN keeps the order that is written: from the few ids to
# their items. Left to itself SQLite begins with all conversations of the tenant and reads all of their items.
_MINTED = text("""
    SELECT conversations.id, given.value AS given, 0 AS is_call_key, conversations.last_used_at
    FROM json_each(:ids) AS given
    CROSS JOIN items ON items.item_id = given.value
    CROSS JOIN conversations ON conversations.key = items.conversation
    WHERE items.produced AND conversations.tenant = :tenant
    UNION ALL
    SELECT conversations.id, given.value, 1, conversations.last_used_at
    FROM json_each(:call_keys) AS given
    CROSS JOIN items ON items.call_key = given.value
    CROSS JOIN conversations ON conversations.key = items.conversation
    WHERE items.produced AND items.call_key IS NOT NULL AND conversations.tenant = :tenant
    ORDER BY 4
""")
_OF_IDS = text("""
    SELECT items.conversation, items.number, items.item_id, items.payload
    FROM json_each(:ids) AS given
    CROSS JOIN items ON items.item_id = given.value
    CROSS JOIN conversations ON conversations.key = items.conversation
    WHERE conversations.tenant = :tenant
    ORDER BY conversations.last_used_at, items.number
""")


_SPELLINGS = select(items.c.digest, items.c.occurrence, items.c.number, items.c.item_id).where(
    items.c.conversation == bindparam("key")
)
_INSERT = insert(items)


class NamedItem(NamedTuple):
    number: int
    item_id: str
    item: Item


class Numbering:
    """Gives numbers to the items of one conversation and collects rows for those seen for the first time."""

    def __init__(self, connection: Connection, key: int, conversation: ConversationId) -> None:
        rows = connection.execute(_SPELLINGS, {"key": key}).all()
        self._key = key
        self._conversation = conversation
        self._numbers: dict[tuple[bytes, int], int] = {
            (row.digest, row.occurrence): row.number for row in rows
        }
        self._ids = {row.item_id for row in rows}
        self._next = max((row.number for row in rows), default=-1) + 1
        self._seen: Counter[bytes] = Counter()
        self._new: list[dict[str, object]] = []

    def numbers(self, recorded: Sequence[RecordedItem], *, produced: bool) -> list[int]:
        """The items' numbers in order. Call it for the prompt, then for the output: occurrences count over both."""
        return [self._number(each, produced) for each in recorded]

    def insert_new(self, connection: Connection) -> None:
        if self._new:
            connection.execute(_INSERT, self._new)

    def _number(self, recorded: RecordedItem, produced: bool) -> int:
        raw, _ = recorded.spelling
        occurrence = self._seen[raw]
        self._seen[raw] += 1
        known = self._numbers.get((raw, occurrence))
        if known is not None:
            return known
        number = self._numbers[raw, occurrence] = self._next
        self._next += 1
        self._new.append(self._row(recorded, raw, occurrence, number, produced))
        return number

    def _row(
        self, recorded: RecordedItem, raw: bytes, occurrence: int, number: int, produced: bool
    ) -> dict[str, object]:
        item = recorded.item
        kind = item.kind if isinstance(item, OpaqueItem) else str(item.raw.get("type", "message"))
        return {
            "conversation": self._key,
            "number": number,
            "digest": raw,
            "occurrence": occurrence,
            "canonical": recorded.digest,
            "kind": kind,
            "item_id": self._item_id(item, kind, raw, occurrence),
            "call_key": call_key(item.call_id) if isinstance(item, FunctionCallItem) else None,
            "produced": produced,
            "payload": to_json(item.raw),
        }

    def _item_id(self, item: Item, kind: str, raw: bytes, occurrence: int) -> str:
        """The id it came with, unless another item of the conversation has it already: ids we hand out are distinct."""
        given = item.raw.get("id")
        usable = isinstance(given, str) and given and given not in self._ids
        item_id = (
            str(given) if usable else minted_item_id(kind, self._conversation, raw, occurrence)
        )
        self._ids.add(item_id)
        return item_id


def read_items(connection: Connection, key: int, numbers: Sequence[int]) -> list[RecordedItem]:
    """Items in the given order as they were sent; deleted ones are missing."""
    if not numbers:
        return []
    rows = connection.execute(
        select(items.c.number, items.c.canonical, items.c.payload).where(
            items.c.conversation == key, items.c.number.between(min(numbers), max(numbers))
        )
    )
    found = {row.number: row for row in rows}
    return [
        RecordedItem(item_from_raw(from_json(row.payload)), row.canonical)
        for number in numbers
        if (row := found.get(number))
    ]


def counted(connection: Connection, key: int) -> Mapping[int, ItemDigest]:
    """The digests of the conversation's items that count, by number."""
    rows = connection.execute(
        select(items.c.number, items.c.canonical).where(
            items.c.conversation == key, items.c.canonical.is_not(None)
        )
    )
    return {row.number: row.canonical for row in rows}


def read_ids(connection: Connection, key: int, numbers: Sequence[int]) -> list[tuple[int, str]]:
    """(number, item id) in the given order; deleted ones are missing."""
    if not numbers:
        return []
    rows = connection.execute(
        select(items.c.number, items.c.item_id).where(
            items.c.conversation == key, items.c.number.between(min(numbers), max(numbers))
        )
    )
    ids = {row.number: row.item_id for row in rows}
    return [(number, ids[number]) for number in numbers if number in ids]


def read_with_ids(
    connection: Connection, key: int, numbers: Sequence[int]
) -> list[dict[str, object]]:
    """Wire forms in the given order, each with its id."""
    rows = connection.execute(
        select(items.c.number, items.c.item_id, items.c.payload).where(
            items.c.conversation == key, items.c.number.in_(numbers)
        )
    )
    found = {row.number: {**from_json(row.payload), "id": row.item_id} for row in rows}
    return [found[number] for number in numbers if number in found]


def minted(
    connection: Connection, tenant: TenantKey, ids: Collection[str]
) -> Mapping[str, ConversationId]:
    """Which of `ids` (item and call ids) we produced, and in which conversation; the latest where there are several."""
    spellings: dict[str, list[str]] = {}
    for each in ids:
        spellings.setdefault(call_key(each), []).append(each)
    asked = {
        "tenant": tenant,
        "ids": to_json(list(ids)),
        "call_keys": to_json(list(spellings)),
    }
    return {
        spelled: ConversationId(row.id)
        for row in connection.execute(_MINTED, asked)
        for spelled in (spellings[row.given] if row.is_call_key else (row.given,))
    }


def of_ids(
    connection: Connection, tenant: TenantKey, ids: Collection[str]
) -> Iterator[tuple[int, NamedItem]]:
    """(conversation key, item) for each stored item served with one of `ids`; a client may have given one id to several."""
    asked = {"tenant": tenant, "ids": to_json(list(ids))}
    for row in connection.execute(_OF_IDS, asked):
        item = item_from_raw(from_json(row.payload))
        yield row.conversation, NamedItem(row.number, row.item_id, item)


def prune(connection: Connection, key: int, live: Collection[int]) -> int:
    """Delete the conversation's items that aren't in `live`; returns how many."""
    stored = connection.execute(select(items.c.number).where(items.c.conversation == key))
    gone: set[int] = set(stored.scalars()).difference(live)
    for some in _chunks(gone):
        connection.execute(
            delete(items).where(items.c.conversation == key, items.c.number.in_(some))
        )
    return len(gone)


def count(connection: Connection, key: int) -> int:
    return connection.execute(
        select(func.count()).select_from(items).where(items.c.conversation == key)
    ).scalar_one()


def _chunks(values: Iterable[T]) -> Iterator[list[T]]:
    remaining = iter(values)
    while chunk := list(islice(remaining, PARAMETERS)):
        yield chunk
