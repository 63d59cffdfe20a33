"""Builds TurnRecords the way a turn would, with as little said as possible."""

from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path

from ninfer_proxy.events import Usage
from ninfer_proxy.items import item_from_raw
from ninfer_proxy.store import ConversationDraft, RecordedItem, TurnRecord
from ninfer_proxy.types import (
    AnchorKind,
    CheckpointId,
    CheckpointInfo,
    ContinuationId,
    ConversationId,
    Decision,
    Head,
    ItemDigest,
    LedgerEntry,
    LineRole,
    MatchKind,
    Reason,
    ResponseId,
    Retention,
    TenantKey,
    Tier,
    TurnPlan,
)

TENANT = TenantKey("tenant-a")
OTHER = TenantKey("tenant-b")
HEAD = Head(ItemDigest(b"t" * 16), ItemDigest(b"i" * 16))


@dataclass
class Clock:
    """Moves only when told to."""

    now: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def digest(text):
    return ItemDigest(blake2b(text.encode(), digest_size=16).digest())


def user(text):
    return {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": text}],
    }


def assistant(text, item_id):
    part = {"type": "output_text", "text": text, "annotations": []}
    return {
        "id": item_id,
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }


def call(call_id, arguments, item_id):
    return {
        "id": item_id,
        "type": "function_call",
        "status": "completed",
        "call_id": call_id,
        "name": "run",
        "arguments": arguments,
    }


def canonical(raw):
    """Stands in for identity: what an item says, without ids and spelling. None for reasoning."""
    item = item_from_raw(raw)
    if raw.get("type") == "reasoning":
        return None
    said = getattr(item, "text", None)
    return digest(f"{raw.get('type')}|{raw.get('role')}|{said}|{raw.get('call_id')}")


def recorded(items):
    """Of wire items, or of items recorded before (histories are long)."""
    return tuple(
        item
        if isinstance(item, RecordedItem)
        else RecordedItem(item_from_raw(item), canonical(item))
        for item in items
    )


def checkpoint(number, continuation="cont-1", position=100, tier=Tier.DEVICE):
    return CheckpointInfo(
        CheckpointId(f"cp{number}"),
        ContinuationId(continuation),
        AnchorKind.TIP,
        position,
        tier,
        10 * position,
    )


def decision(conversation="conv-1", reason=Reason.CACHE_HIT, prompt=100, reused=80, slot=0):
    return Decision(
        reason=reason,
        detail="said for a person",
        slot=slot,
        conversation=ConversationId(conversation),
        match=MatchKind.CONTINUES,
        evidence=("chain",),
        prompt_tokens=prompt,
        reused_tokens=reused,
        source_tier=Tier.DEVICE,
        source_kind=AnchorKind.TIP,
        difference="item 3, character 7: 'secret'",
    )


def plan(conversation="conv-1", continuation="cont-1", slot=0):
    return TurnPlan(
        conversation=ConversationId(conversation),
        continuation=ContinuationId(continuation),
        slot=slot,
        role=LineRole.MAIN,
        anchors=(),
        ladder_tokens=16384,
        retention=Retention(ContinuationId(continuation), 1, 0.0),
    )


def turn(
    response,
    prompt,
    output,
    *,
    conversation="conv-1",
    tenant=TENANT,
    scope="",
    at=1_000_000.0,
    role=LineRole.MAIN,
    slot=0,
    **changes,
):
    """A turn of `conversation` whose prompt and output are the given wire items."""
    continuation = f"cont-{conversation.rpartition('-')[2]}"
    items_in, items_out = recorded(prompt), recorded(output)
    record = TurnRecord(
        conversation=ConversationDraft(
            id=ConversationId(conversation),
            tenant=tenant,
            scope=scope,
            role=role,
            family="plain",
            head=HEAD,
            continuation=ContinuationId(continuation),
            client="OpenAI/Python",
        ),
        response=ResponseId(response),
        created_at=at - 1,
        completed_at=at,
        status="completed",
        prompt=items_in,
        output=items_out,
        body={"id": response, "object": "response", "output": [], "tools": []},
        chain=tuple(each.digest for each in items_in + items_out if each.digest is not None),
        plan=plan(conversation, continuation, slot or 0),
        decision=decision(conversation, slot=slot or 0),
        usage=Usage(100, 80, 10, 0),
        slot=slot,
        engine_generation=1,
        model="demo",
        output_digest=digest(f"output of {response}"),
        ledger=LedgerEntry(b"\1\0\0\0\2\0\0\0", 1, "tok"),
        reasoning="because",
    )
    return replace(record, **changes)


@dataclass
class Chat:
    """A client that re-sends its whole history: each exchange adds a user message and an answer."""

    conversation: str = "conv-1"
    items: list = field(default_factory=list)
    exchanges: int = 0

    @property
    def history(self):
        return [each.item.raw for each in self.items]

    def exchange(self, text):
        """Goes on without a record."""
        self.exchanges += 1
        answer = assistant(f"answer to {text}", f"msg_{self.exchanges}")
        self.items.extend(recorded([user(text), answer]))

    def turn(self, text, **changes):
        self.exchange(text)
        return turn(
            f"resp_{self.exchanges}",
            self.items[:-1],
            self.items[-1:],
            conversation=self.conversation,
            **changes,
        )


def files_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
