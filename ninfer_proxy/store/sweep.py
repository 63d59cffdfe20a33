"""Removal of what is older than the retention. Short batches, so that no turn waits; the tip of a line in use stays."""

from sqlalchemy import Connection, delete, select

from ninfer_proxy.store import conversations, items, responses
from ninfer_proxy.store.records import Swept
from ninfer_proxy.store.tables import conversations as conversation_table
from ninfer_proxy.store.tables import drops
from ninfer_proxy.store.tables import responses as response_table


def sweep_batch(connection: Connection, before: float, now: float, limit: int) -> Swept:
    """One short transaction of removals; an empty result means that nothing is left to do."""
    idle = conversations.delete_idle(connection, before, now, limit)
    if idle:
        return Swept(conversations=idle)
    aged, pruned = _delete_old_responses(connection, before, limit)
    gone = connection.execute(
        delete(drops).where(
            drops.c.key.in_(select(drops.c.key).where(drops.c.at < before).limit(limit))
        )
    ).rowcount
    if not aged and not gone:
        responses.drop_unused_fragments(connection)
    return Swept(responses=aged, items=pruned, drops=gone)


def _delete_old_responses(connection: Connection, before: float, limit: int) -> tuple[int, int]:
    column = response_table.c
    is_tip = (
        select(conversation_table.c.key)
        .where(
            conversation_table.c.key == column.conversation,
            conversation_table.c.tip_response == column.id,
        )
        .exists()
    )
    rows = connection.execute(
        select(column.key, column.conversation)
        .where(column.completed_at < before, ~is_tip)
        .order_by(column.completed_at)
        .limit(limit)
    ).all()
    connection.execute(delete(response_table).where(column.key.in_([row.key for row in rows])))
    pruned = sum(
        items.prune(connection, key, responses.live_items(connection, key))
        for key in {row.conversation for row in rows}
    )
    return len(rows), pruned
