"""Conversations and their lines: finding, reading, advancing. Knows its two tables; nothing of responses."""

from collections.abc import Collection, Iterable

from sqlalchemy import Connection, Row, bindparam, delete, func, select, update
from sqlalchemy.dialects.sqlite import insert

from ninfer_proxy.store.codec import (
    checkpoints_from_json,
    checkpoints_to_json,
    encode_list,
    join_digests,
    split_digests,
)
from ninfer_proxy.store.records import StoredConversation, TurnRecord
from ninfer_proxy.store.tables import conversations, lines
from ninfer_proxy.types import (
    CheckpointInfo,
    ContinuationId,
    ConversationId,
    Head,
    ItemDigest,
    LineRole,
    Reason,
    StoredLine,
    TenantKey,
)

SCOPE_LINES = 100
OPENING_LINES = 50


# Statements of every turn are built once: building one takes longer than running it.
_LINES = (
    select(
        *(
            conversations.c[name]
            for name in (
                *("id", "scope", "role", "family", "head_tools", "head_instructions"),
                *("tip_response", "last_used_at", "parent", "side_kind"),
            )
        ),
        lines.c.chain,
    )
    .outerjoin(lines, lines.c.conversation == conversations.c.key)
    .where(conversations.c.tenant == bindparam("tenant"))
)
_NEWEST = conversations.c.last_used_at.desc()
_IN_SCOPE = (
    _LINES.where(conversations.c.scope == bindparam("scope"))
    .order_by(conversations.c.role, _NEWEST)
    .limit(SCOPE_LINES)
)
_OPENED = (
    _LINES.where(conversations.c.opening == bindparam("opening"))
    .order_by(_NEWEST)
    .limit(OPENING_LINES)
)
_NAMED = _LINES.where(conversations.c.id.in_(bindparam("named", expanding=True)))
_BY_ID = select(conversations).where(conversations.c.id == bindparam("name"))
_KEY = select(conversations.c.key).where(conversations.c.id == bindparam("name"))
_INSERT = insert(conversations).returning(conversations.c.key)
_UPDATE = update(conversations).where(conversations.c.key == bindparam("known_key"))
_VACATE = (
    update(conversations)
    .where(conversations.c.slot == bindparam("taken"), conversations.c.id != bindparam("keep"))
    .values(slot=None)
)
_INSERT_LINE = insert(lines)
_RECORD_LINE = _INSERT_LINE.on_conflict_do_update(
    index_elements=[lines.c.conversation],
    set_={"item_list": _INSERT_LINE.excluded.item_list, "chain": _INSERT_LINE.excluded.chain},
)


def find_lines(
    connection: Connection,
    tenant: TenantKey,
    scope: str,
    opening: ItemDigest | None,
    named: Collection[ConversationId],
) -> tuple[StoredLine, ...]:
    """Lines a request could belong to: of its scope (main lines first), with its opening, and those named. Newest first."""
    asked = {"tenant": tenant, "scope": scope, "opening": opening, "named": list(named)}
    wanted = ((_IN_SCOPE, scope), (_OPENED, opening), (_NAMED, named))
    rows = {
        row.id: row for query, given in wanted if given for row in connection.execute(query, asked)
    }
    newest_first = sorted(rows.values(), key=lambda row: row.last_used_at, reverse=True)
    return tuple(_line(row) for row in newest_first)


def _line(row: Row[*tuple[object, ...]]) -> StoredLine:
    return StoredLine(
        conversation=row.id,
        scope=row.scope,
        role=LineRole(row.role),
        family=row.family,
        head=_head(row),
        chain=split_digests(row.chain or b""),
        tip_response=row.tip_response,
        last_used_at=row.last_used_at,
        parent=row.parent,
        side_kind=row.side_kind,
    )


def _head(row: Row[*tuple[object, ...]]) -> Head:
    return Head(ItemDigest(row.head_tools), ItemDigest(row.head_instructions))


def stored_conversation(row: Row[*tuple[object, ...]]) -> StoredConversation:
    return StoredConversation(
        id=row.id,
        tenant=row.tenant,
        scope=row.scope,
        role=LineRole(row.role),
        family=row.family,
        head=_head(row),
        continuation=row.continuation,
        parent=row.parent,
        side_kind=row.side_kind,
        tip_response=row.tip_response,
        slot=row.slot,
        pinned_until=row.pinned_until,
        is_subagent=row.is_subagent,
        waiting_for_tool=row.waiting_for_tool,
        client=row.client,
        created_at=row.created_at,
        last_used_at=row.last_used_at,
        hits=row.hits,
        tokens_prefilled=row.tokens_prefilled,
        tokens_reused=row.tokens_reused,
        last_reason=row.last_reason,
        checkpoints=checkpoints_from_json(row.checkpoints, row.continuation),
    )


def get(connection: Connection, conversation: ConversationId) -> StoredConversation | None:
    row = connection.execute(_BY_ID, {"name": conversation}).one_or_none()
    return stored_conversation(row) if row else None


def key_of(connection: Connection, conversation: ConversationId) -> int | None:
    return connection.execute(_KEY, {"name": conversation}).scalar_one_or_none()


def record_turn(connection: Connection, turn: TurnRecord) -> int:
    """Insert or update the conversation of a turn; returns its key."""
    draft = turn.conversation
    row = connection.execute(_BY_ID, {"name": draft.id}).one_or_none()
    known = stored_conversation(row) if row else None
    assert known is None or known.tenant == draft.tenant, "a conversation never changes hands"
    if turn.slot is not None and (known is None or known.slot != turn.slot):
        vacate(connection, turn.slot, keep=draft.id)
    values = _turn_values(turn, known)
    if row is None:
        key: int = connection.execute(_INSERT, values).scalar_one()
        return key
    connection.execute(_UPDATE, values | {"known_key": row.key})
    return int(row.key)


def _turn_values(turn: TurnRecord, known: StoredConversation | None) -> dict[str, object]:
    draft, decision = turn.conversation, turn.decision
    recomputed = decision.reason is not Reason.CACHE_HIT
    values: dict[str, object] = {
        "continuation": draft.continuation,
        "slot": turn.slot,
        "pinned_until": _lease(turn, known),
        "waiting_for_tool": draft.waiting_for_tool,
        "last_used_at": turn.completed_at,
        "hits": (known.hits if known else 0) + (decision.reused_tokens > 0),
        "tokens_prefilled": (known.tokens_prefilled if known else 0) + decision.prefilled_tokens,
        "tokens_reused": (known.tokens_reused if known else 0) + decision.reused_tokens,
        "checkpoints": checkpoints_to_json(_merged(turn, known)),
        "role": draft.role,
        "family": draft.family,
        "head_tools": draft.head.tools,
        "head_instructions": draft.head.instructions,
        "side_kind": draft.side_kind,
        "is_subagent": draft.is_subagent,
        "opening": turn.chain[0] if turn.chain else None,
        "tip_response": turn.response,
    }
    if recomputed:
        values["last_reason"] = decision.reason
    if known is None:
        values |= {
            "id": draft.id,
            "tenant": draft.tenant,
            "parent": draft.parent,
            "created_at": turn.created_at,
        }
    if known is None or draft.scope:
        values["scope"] = draft.scope
    if known is None or draft.client:
        values["client"] = draft.client
    return values


def _lease(turn: TurnRecord, known: StoredConversation | None) -> float | None:
    """A turn lengthens a lease; one that was ended while it ran stays ended."""
    if known is None:
        return turn.pinned_until
    if known.pinned_until is None or turn.pinned_until is None:
        return known.pinned_until
    return max(known.pinned_until, turn.pinned_until)


def _merged(turn: TurnRecord, known: StoredConversation | None) -> Iterable[CheckpointInfo]:
    """Known checkpoints with the turn's own put over them, in the order they were made."""
    continuation = turn.conversation.continuation
    merged = {each.checkpoint: each for each in known.checkpoints} if known else {}
    if known and known.continuation != continuation:
        merged.clear()
    merged |= {c.checkpoint: c for c in turn.checkpoints if c.continuation == continuation}
    return merged.values()


def record_line(
    connection: Connection, key: int, numbers: list[int], chain: tuple[ItemDigest, ...]
) -> None:
    packed = {"item_list": encode_list(numbers), "chain": join_digests(chain)}
    connection.execute(_RECORD_LINE, {"conversation": key, **packed})


def vacate(connection: Connection, slot: int, keep: ConversationId) -> None:
    """Take the slot from whoever else holds it: a slot has one conversation."""
    connection.execute(_VACATE, {"taken": slot, "keep": keep})


def owner_of(connection: Connection, continuation: ContinuationId) -> ConversationId | None:
    """The conversation that used the continuation last."""
    return connection.execute(
        select(conversations.c.id)
        .where(conversations.c.continuation == continuation)
        .order_by(conversations.c.last_used_at.desc())
        .limit(1)
    ).scalar_one_or_none()


def delete_idle(connection: Connection, before: float, now: float, limit: int) -> int:
    """Remove conversations unused since `before`, with all they own, unless they hold a slot or a lease."""
    column = conversations.c
    idle = (
        select(column.key)
        .where(
            column.last_used_at < before,
            column.slot.is_(None),
            func.coalesce(column.pinned_until, 0) < now,
        )
        .order_by(column.last_used_at)
        .limit(limit)
    )
    return connection.execute(delete(conversations).where(column.key.in_(idle))).rowcount
