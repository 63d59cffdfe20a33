"""A data directory full of conversations, as if they had been had. Knows the store and identity; runs no turn.

Even numbers name a session and all begin alike; odd ones name nothing and are known by what they say.
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import Connection

from bench.talks import HEAD, Wire
from ninfer_proxy.events import Usage
from ninfer_proxy.http.wire_common import WireDefaults
from ninfer_proxy.http.wire_responses import parse_create
from ninfer_proxy.identity.canonical import digest, group_digest
from ninfer_proxy.identity.resolve import identify
from ninfer_proxy.store.datadir import DATABASE_NAME
from ninfer_proxy.store.db import open_engine, transaction
from ninfer_proxy.store.numbering import Numberings
from ninfer_proxy.store.records import ConversationDraft, RecordedItem, TurnRecord
from ninfer_proxy.store.store import Store
from ninfer_proxy.store.turns import commit_turn
from ninfer_proxy.types import (
    AnchorKind,
    CheckpointId,
    CheckpointInfo,
    ContinuationId,
    ConversationId,
    Decision,
    LedgerEntry,
    LineRole,
    MatchKind,
    Reason,
    ResponseId,
    Retention,
    TenantKey,
    Tier,
    Turn,
    TurnPlan,
)

ITEMS = 200
KINDS = (AnchorKind.HEAD, AnchorKind.PROMPT_END, AnchorKind.REWIND, AnchorKind.TIP)
TENANT = TenantKey("anonymous")
BATCH = 100


def fill(data_dir: Path, conversations: int) -> None:
    """Makes a directory with that many conversations of `ITEMS` items each, all of them holding a slot and checkpoints."""
    asyncio.run(_create(data_dir))
    engine = open_engine(data_dir / DATABASE_NAME, 60.0)
    writer = engine.execution_options(writes=True)
    for start in range(0, conversations, BATCH):
        transaction(writer, _add, range(start, min(start + BATCH, conversations)))
    engine.dispose()


def talk(number: int) -> list[Wire]:
    """The items of a conversation, prompt and answer; in the odd ones even the first is its own."""
    items: list[Wire] = []
    for place in range(0, ITEMS, 4):
        who = number if place or number % 2 else "all"
        call_id = f"call_{number}x{place}"
        output = f"output {place} of {number}: three files and a line of text in each"
        items += [
            {"role": "user", "content": f"question {place} of {who}, in a few words"},
            {"type": "function_call", "call_id": call_id, "name": "tool_1", "arguments": "{}"},
            {"type": "function_call_output", "call_id": call_id, "output": output},
            {"role": "assistant", "content": f"answer {place} of {number}, in some more words"},
        ]
    return items


def turn_of(number: int, items: Sequence[Wire]) -> Turn:
    """A request of that conversation with these items."""
    body = {**HEAD, "input": items}
    headers = {"x-session-id": f"session-{number}"} if number % 2 == 0 else {}
    return parse_create(
        body, headers=headers, tenant=TENANT, now=time.time(), defaults=WireDefaults("agent")
    )


def name_of(number: int) -> ConversationId:
    return ConversationId(f"conv_{number}")


async def _create(data_dir: Path) -> None:
    store = await Store.open(data_dir, clock=time.time)
    await store.close()


def _add(connection: Connection, numbers: Sequence[int]) -> None:
    numberings = Numberings()
    for number in numbers:
        commit_turn(connection, numberings, _record(number))


def _record(number: int) -> TurnRecord:
    """One turn that brought the whole history and got the last item as its answer."""
    items = talk(number)
    turn = turn_of(number, items[:-1])
    identity = identify(turn, turn.items)
    (answer,) = turn_of(number, items[-1:]).items
    said = digest(answer)
    assert said is not None
    name, continuation = name_of(number), ContinuationId(f"conv_{number}")
    now = time.time()
    return TurnRecord(
        conversation=ConversationDraft(
            name,
            TENANT,
            identity.scope,
            LineRole.MAIN,
            identity.family,
            identity.head,
            continuation,
        ),
        response=ResponseId(f"resp_{number}"),
        created_at=now,
        completed_at=now,
        status="completed",
        prompt=tuple(map(RecordedItem, turn.items, identity.digests)),
        output=(RecordedItem(answer, said),),
        body={"object": "response", "instructions": HEAD["instructions"], "tools": HEAD["tools"]},
        chain=(*identity.chain, said),
        plan=TurnPlan(
            name, continuation, number, LineRole.MAIN, (), None, Retention(continuation, 2, now)
        ),
        decision=Decision(
            Reason.NEW_CONVERSATION, "", number, name, MatchKind.NEW, (), 9000, 0, None, None
        ),
        usage=Usage(9000, 0, 12, 0),
        slot=number,
        engine_generation=1,
        model="agent",
        output_digest=group_digest([said]),
        ledger=LedgerEntry(bytes(48), 0, "instant"),
        checkpoints=tuple(
            CheckpointInfo(
                CheckpointId(f"cp{number}.{kind}"), continuation, kind, position, Tier.DISK, 1
            )
            for position, kind in enumerate(KINDS, 9000)
        ),
    )
