"""Slots, leases and checkpoints: what we intend. The engine's snapshot is the truth, and the two are reconciled here."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sqlalchemy import BindParameter, Connection, Row, bindparam, insert, or_, select, update

from ninfer_proxy.store.codec import checkpoints_from_json, checkpoints_to_json
from ninfer_proxy.store.conversations import owner_of, stored_conversation
from ninfer_proxy.store.records import DropRecord, Reconciled, StoredConversation, StoredDrop
from ninfer_proxy.store.tables import conversations, drops
from ninfer_proxy.types import CheckpointInfo, ContinuationId, ConversationId

NOTHING = "[]"


_SLOTS = (
    select(conversations).where(conversations.c.slot.is_not(None)).order_by(conversations.c.slot)
)
_NAMES: BindParameter[list[str]] = bindparam("names", expanding=True)
_SLOTS_OF = select(conversations).where(
    conversations.c.slot.is_not(None),
    or_(conversations.c.id.in_(_NAMES), conversations.c.continuation.in_(_NAMES)),
)
_RECENT_DROPS = (
    select(drops)
    .where(drops.c.conversation == bindparam("name"))
    .order_by(drops.c.at.desc(), drops.c.key.desc())
    .limit(bindparam("count"))
)


def slot_conversations(
    connection: Connection,
    known: tuple[StoredConversation, ...] | None,
    about: Collection[str] | None,
) -> tuple[StoredConversation, ...]:
    """Conversations that hold a slot, by slot. Of those `known` before, only conversations or continuations that were written
    `about` are read again.
    """
    if known is None or about is None:
        return tuple(stored_conversation(row) for row in connection.execute(_SLOTS))
    rows = connection.execute(_SLOTS_OF, {"names": list(about)}) if about else ()
    read = [stored_conversation(row) for row in rows]
    taken = {each.slot for each in read}
    kept = (
        each
        for each in known
        if each.slot not in taken and each.id not in about and each.continuation not in about
    )
    return tuple(sorted((*kept, *read), key=_slot_of))


def _slot_of(each: StoredConversation) -> int:
    assert each.slot is not None
    return each.slot


def release_slots(connection: Connection, released: Collection[ConversationId]) -> None:
    """The conversations hold no slot, no lease and no state from now on."""
    connection.execute(
        update(conversations)
        .where(conversations.c.id.in_(released))
        .values(slot=None, pinned_until=None, checkpoints=NOTHING)
    )


def set_pin(connection: Connection, conversation: ConversationId, until: float | None) -> None:
    _update(connection, conversation, pinned_until=until)


def _update(connection: Connection, conversation: ConversationId, **values: object) -> None:
    connection.execute(
        update(conversations).where(conversations.c.id == conversation).values(values)
    )


def record_drops(connection: Connection, dropped: Iterable[DropRecord]) -> None:
    """Take the checkpoints off the records and keep one row for each continuation that lost some."""
    for drop in dropped:
        for continuation, gone in _by_continuation(drop.checkpoints).items():
            _record_drop(connection, drop, continuation, gone)
            _forget(connection, continuation, gone)


def _by_continuation(
    checkpoints: Iterable[CheckpointInfo],
) -> Mapping[ContinuationId, list[CheckpointInfo]]:
    grouped: dict[ContinuationId, list[CheckpointInfo]] = {}
    for each in checkpoints:
        grouped.setdefault(each.continuation, []).append(each)
    return grouped


def _record_drop(
    connection: Connection,
    drop: DropRecord,
    continuation: ContinuationId,
    gone: list[CheckpointInfo],
) -> None:
    connection.execute(
        insert(drops).values(
            at=drop.at,
            continuation=continuation,
            conversation=owner_of(connection, continuation),
            reason=drop.reason,
            tokens=max(each.position for each in gone),
            bytes=sum(each.bytes for each in gone),
            checkpoints=checkpoints_to_json(gone),
        )
    )


def _forget(
    connection: Connection, continuation: ContinuationId, gone: list[CheckpointInfo]
) -> None:
    lost = {each.checkpoint for each in gone}
    rows = connection.execute(
        select(conversations.c.key, conversations.c.checkpoints).where(
            conversations.c.continuation == continuation
        )
    ).all()
    for row in rows:
        known = checkpoints_from_json(row.checkpoints, continuation)
        kept = [each for each in known if each.checkpoint not in lost]
        if len(kept) < len(known):
            connection.execute(
                update(conversations)
                .where(conversations.c.key == row.key)
                .values(checkpoints=checkpoints_to_json(kept))
            )


def recent_drops(
    connection: Connection, conversation: ConversationId, count: int
) -> tuple[StoredDrop, ...]:
    """Newest first."""
    rows = connection.execute(_RECENT_DROPS, {"name": conversation, "count": count})
    return tuple(_stored_drop(row) for row in rows)


def _stored_drop(row: Row[Any]) -> StoredDrop:
    return StoredDrop(
        at=row.at,
        continuation=row.continuation,
        conversation=row.conversation,
        reason=row.reason,
        tokens=row.tokens,
        bytes=row.bytes,
        checkpoints=checkpoints_from_json(row.checkpoints, row.continuation),
    )


def reconcile(
    connection: Connection,
    held: Mapping[ContinuationId, tuple[CheckpointInfo, ...]],
    lost_reason: str | None,
    at: float,
) -> Reconciled:
    """Make the records say what the engine holds. What it lost is recorded as dropped for `lost_reason`, if one is given.

    Conversations keep their slots: one whose state is gone is computed again in the same place. What one without a slot has is
    nobody's.
    """
    column = conversations.c
    rows = connection.execute(
        select(column.id, column.continuation, column.checkpoints, column.slot).where(
            or_(column.checkpoints != NOTHING, column.continuation.in_(held))
        )
    ).all()
    owned = {row.continuation for row in rows if row.slot is not None}
    lost: list[ConversationId] = []
    for row in rows:
        known = checkpoints_from_json(row.checkpoints, row.continuation)
        true = _in_order(known, held.get(row.continuation, ()) if row.slot is not None else ())
        if known == true:
            continue
        if not true:
            lost.append(row.id)
        still = {each.checkpoint for each in true}
        gone = [each for each in known if each.checkpoint not in still]
        if gone and lost_reason is not None:
            drop = DropRecord(at, lost_reason, tuple(gone))
            _record_drop(connection, drop, row.continuation, gone)
        _update(connection, row.id, checkpoints=checkpoints_to_json(true))
    return Reconciled(tuple(lost), tuple(each for each in held if each not in owned))


def _in_order(
    known: Iterable[CheckpointInfo], held: Iterable[CheckpointInfo]
) -> tuple[CheckpointInfo, ...]:
    """`held` in the order of making as far as it is known; what is new comes last."""
    remaining = {each.checkpoint: each for each in held}
    still = [remaining.pop(each.checkpoint) for each in known if each.checkpoint in remaining]
    return (*still, *remaining.values())
