"""The store: everything durable behind one object. Each method is one short transaction; knows no HTTP and no engine.

All methods may raise StoreUnavailable (or its kinds StoreBusy, StoreFull), and then nothing was changed.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import IO, Any, TypeVar, TypeVarTuple

from sqlalchemy import Connection

from ninfer_proxy.compared import HeadText
from ninfer_proxy.errors import StartRefused, StoreUnavailable
from ninfer_proxy.habits import Habits
from ninfer_proxy.store import (
    conversations,
    datadir,
    habits,
    heads,
    items,
    ledger,
    responses,
    turns,
)
from ninfer_proxy.store.check import StoreCheck
from ninfer_proxy.store.datadir import DatabaseFile
from ninfer_proxy.store.db import Database, open_engine, transaction
from ninfer_proxy.store.migrate import upgrade
from ninfer_proxy.store.numbering import Numbering, Numberings
from ninfer_proxy.store.records import (
    ConversationDetail,
    DropRecord,
    ItemPage,
    Reconciled,
    StoredConversation,
    StoredDrop,
    StoredHistory,
    StoredOutput,
    StoredResponse,
    Swept,
    TurnRecord,
)
from ninfer_proxy.store.sweep import sweep_batch
from ninfer_proxy.store.troubles import typed_errors
from ninfer_proxy.types import (
    CheckpointInfo,
    ContinuationId,
    ConversationId,
    Item,
    ItemDigest,
    ResponseId,
    SlotState,
    StoredLine,
    TenantKey,
)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

BUSY_TIMEOUT_S = 15.0
SWEEP_BATCH = 200
SHOWN_RESPONSES = 20
SHOWN_DROPS = 20


class Store:
    """Made by `Store.open`. `set_aside` says where a damaged database went, if there was one."""

    def __init__(
        self,
        database: Database[tuple[StoredConversation, ...]],
        lock: IO[str],
        clock: Callable[[], float],
        set_aside: Path | None,
        revisions: tuple[str | None, str | None],
    ) -> None:
        self._database = database
        self._check = StoreCheck(database)
        self._numberings = Numberings()
        self._habits: dict[tuple[TenantKey, str], Habits] | None = None
        self._lock = lock
        self._clock = clock
        self.set_aside = set_aside
        self.revisions = revisions

    @classmethod
    async def open(
        cls,
        data_dir: Path,
        *,
        clock: Callable[[], float],
        busy_timeout_s: float = BUSY_TIMEOUT_S,
    ) -> "Store":
        """Lock the directory, set a damaged database aside, bring the schema up to date.

        Errors: StartRefused when another process has the directory, it can't be used, or the database isn't ours.
        """
        lock = datadir.claim(data_dir)
        try:
            path = data_dir / datadir.DATABASE_NAME
            set_aside = await asyncio.to_thread(datadir.set_aside_if_damaged, path, clock)
            revisions = await asyncio.to_thread(_migrate, path, busy_timeout_s)
            path.chmod(0o600)
            engine = open_engine(path, busy_timeout_s)
            database = Database(engine, DatabaseFile.at(path), ledger.slot_conversations)
        except StoreUnavailable as error:
            lock.close()
            raise StartRefused(error.message) from error
        except BaseException:
            lock.close()
            raise
        return cls(database, lock, clock, set_aside, revisions)

    async def close(self) -> None:
        """Finish what is running, then give the directory back."""
        try:
            await self._database.close()
        finally:
            self._lock.close()

    def _deleting(
        self, connection: Connection, work: Callable[[Connection, *Ts], T], *args: *Ts
    ) -> T:
        """`work`, which deletes items."""
        self._numberings.forget()
        return work(connection, *args)

    # --- identity ------------------------------------------------------------------------------

    async def find_lines(
        self,
        tenant: TenantKey,
        scope: str,
        opening: ItemDigest | None,
        conversations_named: Collection[ConversationId] = (),
    ) -> tuple[StoredLine, ...]:
        """Lines a request may belong to: of its scope, with its first item, and those named. Newest first."""
        return await self._database.read(
            conversations.find_lines, tenant, scope, opening, conversations_named
        )

    async def line_items(self, conversation: ConversationId) -> tuple[Item, ...]:
        """The item behind each digest of the line's chain; () when part of it was deleted."""
        return await self._database.read(turns.line_items, conversation)

    async def habits(self, tenant: TenantKey, family: str) -> Habits:
        """What was learned of a client family; read once, kept in memory from then on."""
        if self._habits is None:
            found = await self._database.read(habits.all_habits)
            if self._habits is None:
                self._habits = dict(found)
        return self._habits.get((tenant, family), {})

    async def history(self, tenant: TenantKey, response: ResponseId) -> StoredHistory | None:
        """Prompt and output items; None if unknown, deleted, not retrievable or another tenant's."""
        return await self._database.read(responses.history, tenant, response)

    async def minted(self, tenant: TenantKey, ids: Collection[str]) -> Mapping[str, ConversationId]:
        """Which of these item and call ids we produced, and in which conversation."""
        return await self._database.read(items.minted, tenant, ids)

    async def resolve_references(
        self, tenant: TenantKey, ids: Collection[str]
    ) -> Mapping[str, Item]:
        """Stored items by id; missing are unknown ids, and those that only store:false turns held."""
        return await self._database.read(turns.resolve_references, tenant, ids)

    async def outputs(
        self, conversation: ConversationId, digests: Collection[ItemDigest]
    ) -> Mapping[ItemDigest, tuple[StoredOutput, ...]]:
        """Reasoning and tokens of assistant turns that the client replays, by output digest, in the order of making."""
        return await self._database.read(responses.outputs, conversation, digests)

    # --- turns and responses -------------------------------------------------------------------

    async def commit_turn(self, turn: TurnRecord) -> None:
        """Everything of a finished turn, all or nothing, on disk when this returns."""

        def keep(done: tuple[Numbering, Habits | None]) -> None:
            numbering, learned = done
            self._numberings.keep(numbering)
            if self._habits is not None and learned is not None:
                self._habits[turn.conversation.tenant, turn.conversation.family] = learned

        await self._database.write(
            turns.commit_turn, self._numberings, turn, about={turn.conversation.id}, done=keep
        )

    async def get_response(
        self, tenant: TenantKey, response: ResponseId
    ) -> Mapping[str, Any] | None:
        """The final response object; None as for `history`."""
        return await self._database.read(responses.get_response, tenant, response)

    async def delete_response(self, tenant: TenantKey, response: ResponseId) -> bool:
        """Erase it and the items only it refers to; False if there is no such response to see."""
        return await self._database.write(
            self._deleting, responses.delete_response, tenant, response, about=()
        )

    async def input_items(
        self,
        tenant: TenantKey,
        response: ResponseId,
        after: str | None = None,
        limit: int = 20,
        order: str = "desc",
    ) -> ItemPage | None:
        """A page of the whole prompt, `order` asc or desc. Errors: InvalidRequest for an `after` that isn't in it."""
        return await self._database.read(
            responses.input_items, tenant, response, after, limit, order
        )

    # --- slots ---------------------------------------------------------------------------------

    async def slots(self) -> tuple[SlotState, ...]:
        """Slots as planning sees them (`in_flight` is 0: only the turns know). True at the moment this returns (Database.view)."""
        return tuple(each.slot_state for each in await self.slot_conversations())

    async def slot_conversations(self) -> tuple[StoredConversation, ...]:
        """Their records, by slot; as true as `slots`."""
        return await self._database.view()

    async def release_slots(self, released: Collection[ConversationId]) -> None:
        """The conversations hold no slot, no lease and no state from now on."""
        await self._database.write(ledger.release_slots, released, about=set(released))

    async def set_pin(self, conversation: ConversationId, until: float | None) -> None:
        await self._database.write(ledger.set_pin, conversation, until, about={conversation})

    async def record_drops(self, dropped: Iterable[DropRecord]) -> None:
        """Note checkpoints that ceased to exist and why; they leave the slots' lists."""
        drops = tuple(dropped)
        lost = {each.continuation for drop in drops for each in drop.checkpoints}
        await self._database.write(ledger.record_drops, drops, about=lost)

    async def recent_drops(
        self, conversation: ConversationId, count: int
    ) -> tuple[StoredDrop, ...]:
        """Newest first."""
        return await self._database.read(ledger.recent_drops, conversation, count)

    async def reconcile(
        self,
        held: Mapping[ContinuationId, tuple[CheckpointInfo, ...]],
        lost_reason: str | None = None,
    ) -> Reconciled:
        """Make the records say what the engine's snapshot says; with a reason, what is lost is recorded as dropped."""
        return await self._database.write(ledger.reconcile, held, lost_reason, self._clock())

    # --- explanation ---------------------------------------------------------------------------

    async def conversation(self, conversation: ConversationId) -> StoredConversation | None:
        return await self._database.read(conversations.get, conversation)

    async def show(self, conversation: ConversationId) -> ConversationDetail | None:
        return await self._database.read(turns.show, conversation, SHOWN_RESPONSES, SHOWN_DROPS)

    async def explain(self, response: ResponseId) -> StoredResponse | None:
        return await self._database.read(responses.explain, response)

    async def last_turn(
        self, conversation: ConversationId, drops: int
    ) -> tuple[StoredResponse | None, tuple[StoredDrop, ...]]:
        """The conversation's newest response, and at most `drops` of what it has lost since, newest first."""
        return await self._database.read(turns.last_turn, conversation, drops)

    async def head_text(self, response: ResponseId) -> HeadText | None:
        """What stood before the conversation in its prompt, as it was sent; None if unknown or deleted."""
        return await self._database.read(heads.head_text, response)

    async def recent_responses(
        self, conversation: ConversationId, count: int
    ) -> tuple[StoredResponse, ...]:
        """Newest first."""
        return await self._database.read(turns.recent_responses, conversation, count)

    # --- upkeep --------------------------------------------------------------------------------

    async def trouble(self) -> StoreUnavailable | None:
        """Why nothing can be stored now, as far as can be told in a moment; None while all is well."""
        return await self._check.trouble()

    async def sweep(self, before: float) -> Swept:
        """Remove what was last used before `before` (Unix seconds), a short batch at a time, and shrink the log."""
        total = Swept()
        while True:
            batch = await self._database.write(
                self._deleting, sweep_batch, before, self._clock(), SWEEP_BATCH, about=()
            )
            if batch == Swept():
                break
            total = total.plus(batch)
        await self._database.shrink_log()
        return total


def _migrate(path: Path, busy_timeout_s: float) -> tuple[str | None, str | None]:
    engine = open_engine(path, busy_timeout_s, create=True, foreign_keys=False)
    try:
        with typed_errors(path):
            return transaction(engine.execution_options(writes=True), upgrade)
    finally:
        engine.dispose()
