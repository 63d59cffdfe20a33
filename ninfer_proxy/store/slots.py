"""The records of those who hold slots, kept in memory until something is written: each decision looks at them. Knows no plan."""

from ninfer_proxy.store import ledger
from ninfer_proxy.store.db import Database
from ninfer_proxy.store.records import StoredConversation


class SlotRecords:
    """Mutable. Holds because the directory's lock makes this process the only one that writes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._read_at: int | None = None
        self._records: tuple[StoredConversation, ...] = ()

    async def current(self) -> tuple[StoredConversation, ...]:
        """Conversations that hold a slot, by slot; true at the moment this returns, since nothing is awaited behind the last
        look at the count of writes. Errors: StoreUnavailable and its kinds.
        """
        while self._read_at != self._database.writes:
            before = self._database.writes
            records = await self._database.read(ledger.slot_conversations)
            if self._read_at is None or before > self._read_at:
                self._read_at, self._records = before, records
        self._database.file.check()
        return self._records
