"""The numbers of a conversation's items: given, and remembered while the conversation is in use. Knows the items' table; reads no item."""

from collections import Counter, OrderedDict
from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, insert, select

from ninfer_proxy.items import call_key
from ninfer_proxy.store.codec import minted_item_id, to_json
from ninfer_proxy.store.records import RecordedItem
from ninfer_proxy.store.tables import items
from ninfer_proxy.types import ConversationId, FunctionCallItem, Item, OpaqueItem

REMEMBERED_ITEMS = 20_000

_SPELLINGS = select(items.c.digest, items.c.occurrence, items.c.number, items.c.item_id).where(
    items.c.conversation == bindparam("key")
)
_INSERT = insert(items)


class Numbering:
    """Gives numbers to the items of one conversation, turn after turn, and collects rows for those seen for the first time."""

    def __init__(self, connection: Connection, key: int, conversation: ConversationId) -> None:
        rows = connection.execute(_SPELLINGS, {"key": key}).all()
        self.key = key
        self._conversation = conversation
        self._numbers: dict[tuple[bytes, int], int] = {
            (row.digest, row.occurrence): row.number for row in rows
        }
        self._ids = {row.item_id for row in rows}
        self._next = max((row.number for row in rows), default=-1) + 1
        self.begin()

    def __len__(self) -> int:
        return len(self._numbers)

    def begin(self) -> None:
        """A turn begins."""
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
            "conversation": self.key,
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


class Numberings:
    """Those of conversations lately in use. Mutable; only used by whoever writes, and one writes at a time.

    A numbering is taken out while its turn is written and kept when that is on disk, so what failed is read anew.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[int, Numbering] = OrderedDict()
        self._items = 0

    def take(self, connection: Connection, key: int, conversation: ConversationId) -> Numbering:
        """The numbering of that conversation, remembered or read."""
        numbering = self._kept.pop(key, None)
        if numbering is None:
            return Numbering(connection, key, conversation)
        self._items -= len(numbering)
        numbering.begin()
        return numbering

    def keep(self, numbering: Numbering) -> None:
        self._kept[numbering.key] = numbering
        self._items += len(numbering)
        while self._items > REMEMBERED_ITEMS:
            _, oldest = self._kept.popitem(last=False)
            self._items -= len(oldest)

    def forget(self) -> None:
        """Items are going to be deleted."""
        self._kept.clear()
        self._items = 0
