"""What spans tables: one finished turn, and a conversation shown whole. Knows the modules of each table, no SQL but joins."""

from collections.abc import Collection, Mapping

from sqlalchemy import Connection, select

from ninfer_proxy.store import conversations, items, ledger, responses
from ninfer_proxy.store.codec import decode_list, split_digests
from ninfer_proxy.store.numbering import Numbering, Numberings
from ninfer_proxy.store.records import (
    ConversationDetail,
    StoredDrop,
    StoredResponse,
    TurnRecord,
)
from ninfer_proxy.store.tables import lines
from ninfer_proxy.types import ConversationId, Item, TenantKey


def commit_turn(connection: Connection, numberings: Numberings, turn: TurnRecord) -> Numbering:
    """Conversation, new items, line, response, plan, decision and checkpoints. The numbering is to be kept once that is on disk."""
    key = conversations.record_turn(connection, turn)
    numbering = numberings.take(connection, key, turn.conversation.id)
    prompt = numbering.numbers(turn.prompt, produced=False)
    output = numbering.numbers(turn.output, produced=True)
    numbering.insert_new(connection)
    conversations.record_line(connection, key, prompt + output, turn.chain)
    responses.record_response(connection, turn, key, prompt, output)
    return numbering


def line_items(connection: Connection, conversation: ConversationId) -> tuple[Item, ...]:
    """One item for each digest of the chain, or () when they no longer agree (something was deleted).

    The line may hold more than its chain: an answer that was broken off is kept, but the client won't replay it.
    """
    key = conversations.key_of(connection, conversation)
    row = connection.execute(select(lines).where(lines.c.conversation == key)).one_or_none()
    if key is None or row is None:
        return ()
    recorded = items.read_items(connection, key, decode_list(row.item_list))
    counted = [each for each in recorded if each.digest is not None]
    chain = split_digests(row.chain)
    line = counted[: len(chain)]
    return tuple(each.item for each in line) if [c.digest for c in line] == [*chain] else ()


def resolve_references(
    connection: Connection, tenant: TenantKey, ids: Collection[str]
) -> Mapping[str, Item]:
    """Items by the id they were served with, the latest where there are several. What only store:false turns held can't be
    referred to: to their client it was never stored.
    """
    candidates = list(items.of_ids(connection, tenant, ids))
    numbers: dict[int, set[int]] = {}
    for key, named in candidates:
        numbers.setdefault(key, set()).add(named.number)
    readable = {
        key: responses.readable_items(connection, key, some) for key, some in numbers.items()
    }
    return {named.item_id: named.item for key, named in candidates if named.number in readable[key]}


def show(
    connection: Connection, conversation: ConversationId, responses_shown: int, drops_shown: int
) -> ConversationDetail | None:
    found = conversations.get(connection, conversation)
    key = conversations.key_of(connection, conversation)
    if found is None or key is None:
        return None
    line = connection.execute(
        select(lines.c.item_list).where(lines.c.conversation == key)
    ).scalar_one_or_none()
    return ConversationDetail(
        conversation=found,
        items=items.count(connection, key),
        line_items=len(decode_list(line or b"")),
        responses=responses.recent(connection, key, responses_shown),
        drops=ledger.recent_drops(connection, conversation, drops_shown),
    )


def recent_responses(
    connection: Connection, conversation: ConversationId, count: int
) -> tuple[StoredResponse, ...]:
    key = conversations.key_of(connection, conversation)
    return () if key is None else responses.recent(connection, key, count)


def last_turn(
    connection: Connection, conversation: ConversationId, drops: int
) -> tuple[StoredResponse | None, tuple[StoredDrop, ...]]:
    last = next(iter(recent_responses(connection, conversation, 1)), None)
    since = last.created_at if last else 0.0
    dropped = ledger.recent_drops(connection, conversation, drops)
    return last, tuple(drop for drop in dropped if drop.at >= since)
