"""Items: each once per conversation, numbered as first seen. Knows its table; nothing of what refers to it.

An item is told apart by its wire form and by how often that form has occurred before it in the same list ("yes" said twice
is two items). A client that re-sends its history therefore adds only what is new.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

from sqlalchemy import Connection, delete, func, select, text

from ninfer_proxy.items import call_key, item_from_raw
from ninfer_proxy.store.codec import (
    from_json,
    to_json,
)
from ninfer_proxy.store.records import RecordedItem
from ninfer_proxy.store.tables import items
from ninfer_proxy.types import (
    ConversationId,
    Item,
    ItemDigest,
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


class NamedItem(NamedTuple):
    number: int
    item_id: str
    item: Item


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
