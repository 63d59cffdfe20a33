"""Responses: keeping, giving back, deleting, explaining. Knows its table and fragments; items only by number."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, delete, insert, select, update

from ninfer_proxy.errors import InvalidRequest
from ninfer_proxy.events import Usage
from ninfer_proxy.store import items
from ninfer_proxy.store.codec import (
    decision_from_json,
    decode_list,
    digest,
    encode_list,
    from_json,
    to_json,
)
from ninfer_proxy.store.records import (
    ItemPage,
    StoredHistory,
    StoredOutput,
    StoredResponse,
    TurnRecord,
)
from ninfer_proxy.store.tables import conversations, fragments, responses
from ninfer_proxy.types import (
    ConversationId,
    ItemDigest,
    LedgerEntry,
    ResponseId,
    TenantKey,
)

FRAGMENTS = ("instructions", "tools")
"""Fields of a body that are kept once for all responses that repeat them."""


_INSERT = insert(responses)
_FRAGMENT = select(fragments.c.key).where(
    fragments.c.tenant == bindparam("tenant"), fragments.c.digest == bindparam("digest")
)
_OUTPUTS = (
    select(
        *(
            responses.c[name]
            for name in (
                *("conversation", "prompt", "output_digest", "reasoning"),
                *("ledger_tokens", "content_offset", "tokenizer_id"),
            )
        )
    )
    .join(conversations, conversations.c.key == responses.c.conversation)
    .where(
        conversations.c.id == bindparam("name"),
        responses.c.output_digest.in_(bindparam("digests", expanding=True)),
    )
    .order_by(responses.c.key)
)


def record_response(
    connection: Connection, turn: TurnRecord, key: int, prompt: list[int], output: list[int]
) -> None:
    tenant = turn.conversation.tenant
    shared = {name: _fragment(connection, tenant, turn.body.get(name)) for name in FRAGMENTS}
    body = {
        name: value
        for name, value in turn.body.items()
        if name != "output" and shared.get(name) is None
    }
    ledger = turn.ledger
    connection.execute(
        _INSERT,
        dict(
            id=turn.response,
            conversation=key,
            previous_response=turn.previous_response,
            created_at=turn.created_at,
            completed_at=turn.completed_at,
            status=turn.status,
            retrievable=turn.retrievable,
            deleted=False,
            model=turn.model,
            effort=turn.effort,
            engine_generation=turn.engine_generation,
            input_tokens=turn.usage.input_tokens,
            cached_tokens=turn.usage.cached_tokens,
            output_tokens=turn.usage.output_tokens,
            reasoning_tokens=turn.usage.reasoning_tokens,
            prompt=encode_list(prompt),
            output=encode_list(output),
            output_digest=turn.output_digest,
            ledger_tokens=ledger and ledger.tokens,
            content_offset=ledger and ledger.content_offset,
            tokenizer_id=ledger and ledger.tokenizer_id,
            reasoning=turn.reasoning,
            body=to_json(body),
            plan=to_json(turn.plan),
            decision=to_json(turn.decision),
            weights_id=turn.weights_id,
            **shared,
        ),
    )


def _fragment(connection: Connection, tenant: TenantKey, value: Any) -> int | None:
    """The key of a stored fragment with this value; None for an empty one, which stays in the body."""
    if not value:
        return None
    payload = to_json(value)
    name = digest(payload)
    known = connection.execute(_FRAGMENT, {"tenant": tenant, "digest": name}).scalar_one_or_none()
    if known is not None:
        return known
    return connection.execute(
        insert(fragments)
        .values(tenant=tenant, digest=name, payload=payload)
        .returning(fragments.c.key)
    ).scalar_one()


def fragment_of(connection: Connection, row: Row[Any], name: str) -> Any:
    """That field of a response's body where it is kept as a fragment, else None."""
    key = row._mapping[name]
    if key is None:
        return None
    return from_json(
        connection.execute(select(fragments.c.payload).where(fragments.c.key == key)).scalar_one()
    )


def _visible(tenant: TenantKey, response: ResponseId) -> Select[Any]:
    """The response as its owner may see it: not another tenant's, not deleted, not store:false."""
    return (
        select(responses, conversations.c.id.label("conversation_id"))
        .join(conversations, conversations.c.key == responses.c.conversation)
        .where(
            responses.c.id == response,
            conversations.c.tenant == tenant,
            responses.c.retrievable,
            ~responses.c.deleted,
        )
    )


def history(
    connection: Connection, tenant: TenantKey, response: ResponseId
) -> StoredHistory | None:
    row = connection.execute(_visible(tenant, response)).one_or_none()
    if row is None:
        return None
    numbers = decode_list(row.prompt) + decode_list(row.output)
    recorded = items.read_items(connection, row.conversation, numbers)
    return StoredHistory(row.conversation_id, response, tuple(each.item for each in recorded))


def get_response(
    connection: Connection, tenant: TenantKey, response: ResponseId
) -> Mapping[str, Any] | None:
    """The final body, put together again."""
    row = connection.execute(_visible(tenant, response)).one_or_none()
    if row is None:
        return None
    body: dict[str, Any] = from_json(row.body)
    for name in FRAGMENTS:
        if row._mapping[name] is not None:
            body[name] = fragment_of(connection, row, name)
    body["output"] = items.read_with_ids(connection, row.conversation, decode_list(row.output))
    return body


def input_items(
    connection: Connection,
    tenant: TenantKey,
    response: ResponseId,
    after: str | None,
    limit: int,
    order: str,
) -> ItemPage | None:
    """One page of the response's whole prompt. Errors: InvalidRequest when `after` isn't in it."""
    row = connection.execute(_visible(tenant, response)).one_or_none()
    if row is None:
        return None
    listed = items.read_ids(connection, row.conversation, decode_list(row.prompt))
    if order == "desc":
        listed.reverse()
    if after is not None:
        ids = [item_id for _, item_id in listed]
        if after not in ids:
            raise InvalidRequest(f"No input item {after} in {response}.", param="after")
        listed = listed[ids.index(after) + 1 :]
    page = listed[:limit]
    return ItemPage(
        data=tuple(items.read_with_ids(connection, row.conversation, [n for n, _ in page])),
        first_id=page[0][1] if page else None,
        last_id=page[-1][1] if page else None,
        has_more=len(listed) > len(page),
    )


def delete_response(connection: Connection, tenant: TenantKey, response: ResponseId) -> bool:
    """Erase what the response said. Its row stays as a mark for `explain`; items others refer to stay too."""
    row = connection.execute(_visible(tenant, response)).one_or_none()
    if row is None:
        return False
    quoted = {**from_json(row.decision), "difference": None, "stabilised": ()}
    connection.execute(
        update(responses)
        .where(responses.c.key == row.key)
        .values(
            deleted=True,
            body=None,
            prompt=b"",
            output=b"",
            output_digest=None,
            ledger_tokens=None,
            content_offset=None,
            tokenizer_id=None,
            reasoning=None,
            instructions=None,
            tools=None,
            decision=to_json(quoted),
        )
    )
    items.prune(connection, row.conversation, live_items(connection, row.conversation))
    drop_unused_fragments(connection)
    return True


def live_items(connection: Connection, key: int) -> set[int]:
    """Numbers of the conversation's items that a response still refers to."""
    rows = connection.execute(
        select(responses.c.prompt, responses.c.output).where(responses.c.conversation == key)
    )
    return {number for row in rows for packed in row for number in decode_list(packed)}


def readable_items(connection: Connection, key: int, wanted: Collection[int]) -> set[int]:
    """Those of the conversation's items that a response which may be read refers to: not deleted, not store:false."""
    rows = connection.execute(
        select(responses.c.prompt, responses.c.output)
        .where(responses.c.conversation == key, responses.c.retrievable, ~responses.c.deleted)
        .order_by(responses.c.key.desc())
    )
    missing = set(wanted)
    for row in rows:
        missing.difference_update(decode_list(row.prompt), decode_list(row.output))
        if not missing:
            break
    return set(wanted) - missing


def drop_unused_fragments(connection: Connection) -> None:
    key = fragments.c.key
    used = (
        select(responses.c.key)
        .where((responses.c.instructions == key) | (responses.c.tools == key))
        .exists()
    )
    connection.execute(delete(fragments).where(~used))


def outputs(
    connection: Connection, conversation: ConversationId, digests: Collection[ItemDigest]
) -> Mapping[ItemDigest, tuple[StoredOutput, ...]]:
    """What was generated for replayed assistant turns, by output digest; in the order of making where several say the same."""
    rows = connection.execute(_OUTPUTS, {"name": conversation, "digests": list(digests)}).all()
    names = Counter(row.output_digest for row in rows)
    counted: Mapping[int, ItemDigest] = {}
    if len(names) < len(rows):
        counted = items.counted(connection, rows[0].conversation)
    found: dict[ItemDigest, list[StoredOutput]] = {}
    for row in rows:
        prompt = decode_list(row.prompt) if names[row.output_digest] > 1 else ()
        before = [counted[number] for number in prompt if number in counted]
        found.setdefault(ItemDigest(row.output_digest), []).append(_output(row, before))
    return {name: tuple(some) for name, some in found.items()}


def _output(row: Row[Any], before: Sequence[ItemDigest]) -> StoredOutput:
    ledger = None
    if row.ledger_tokens is not None:
        ledger = LedgerEntry(row.ledger_tokens, row.content_offset, row.tokenizer_id)
    return StoredOutput(row.reasoning, ledger, len(before), tuple(before[-2:]))


_DESCRIBED = select(
    *(
        column
        for column in responses.c
        if column.name not in ("body", "ledger_tokens", "reasoning")
    ),
    conversations.c.id.label("conversation_id"),
).join(conversations, conversations.c.key == responses.c.conversation)
_EXPLAINED = _DESCRIBED.where(responses.c.id == bindparam("response"))
_RECENT = (
    _DESCRIBED.where(responses.c.conversation == bindparam("conversation_key"))
    .order_by(responses.c.completed_at.desc(), responses.c.key.desc())
    .limit(bindparam("count"))
)


def explain(connection: Connection, response: ResponseId) -> StoredResponse | None:
    row = connection.execute(_EXPLAINED, {"response": response}).one_or_none()
    return _stored(row) if row else None


def recent(connection: Connection, key: int, count: int) -> tuple[StoredResponse, ...]:
    """Newest first."""
    rows = connection.execute(_RECENT, {"conversation_key": key, "count": count})
    return tuple(_stored(row) for row in rows)


def _stored(row: Row[Any]) -> StoredResponse:
    return StoredResponse(
        id=row.id,
        conversation=row.conversation_id,
        previous_response=row.previous_response,
        created_at=row.created_at,
        completed_at=row.completed_at,
        status=row.status,
        retrievable=row.retrievable,
        deleted=row.deleted,
        model=row.model,
        weights_id=row.weights_id,
        effort=row.effort,
        engine_generation=row.engine_generation,
        prompt_items=len(decode_list(row.prompt)),
        output_items=len(decode_list(row.output)),
        usage=Usage(row.input_tokens, row.cached_tokens, row.output_tokens, row.reasoning_tokens),
        decision=decision_from_json(row.decision),
        plan=from_json(row.plan),
    )
