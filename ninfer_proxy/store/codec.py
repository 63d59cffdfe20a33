"""How values are packed into columns: JSON, item lists, digests, ids. Pure; knows no table."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from json import dumps as plain_dumps
from json import loads as plain_loads
from typing import Any

import orjson
from blake3 import blake3

from ninfer_proxy.types import (
    AnchorKind,
    CheckpointId,
    CheckpointInfo,
    ContinuationId,
    ConversationId,
    Decision,
    ItemDigest,
    MatchKind,
    Reason,
    Tier,
)

DIGEST_BYTES = 16
PLAIN = " "
"""In front of JSON that only the standard library reads as it was meant."""

ITEM_ID_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
}


def to_json(value: Any, *, sort_keys: bool = False) -> str:
    """Compact JSON of plain data and dataclasses.

    Clients send what orjson refuses (integers over 64 bits, lone surrogates); such values take the slower way instead
    of losing the turn.
    """
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS if sort_keys else 0).decode()
    except (TypeError, orjson.JSONEncodeError):
        return PLAIN + plain_dumps(
            value, separators=(",", ":"), sort_keys=sort_keys, default=_as_dict
        )


def _as_dict(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def from_json(text: str) -> Any:
    """What `to_json` wrote. orjson would refuse lone surrogates and turn big integers into floats."""
    return plain_loads(text) if text.startswith(PLAIN) else orjson.loads(text)


def digest(text: str) -> bytes:
    return blake3(text.encode("utf-8", "surrogatepass")).digest(length=DIGEST_BYTES)


def raw_digest(raw: Mapping[str, Any]) -> tuple[bytes, int]:
    """Equal for wire forms that are the same JSON value; the order of keys doesn't count. And how long that JSON is, in characters."""
    text = to_json(raw, sort_keys=True)
    return digest(text), len(text)


def minted_item_id(kind: str, conversation: ConversationId, raw: bytes, occurrence: int) -> str:
    """An id for an item that came without one: the same whenever it is asked for, unique to its place."""
    seed = b"\0".join((conversation.encode(), raw, str(occurrence).encode()))
    return f"{ITEM_ID_PREFIXES.get(kind, 'item')}_{blake3(seed).hexdigest(length=DIGEST_BYTES)}"


def join_digests(digests: Iterable[ItemDigest]) -> bytes:
    joined = b"".join(digests)
    assert len(joined) % DIGEST_BYTES == 0, "a canonical digest has 16 bytes"
    return joined


def split_digests(joined: bytes) -> tuple[ItemDigest, ...]:
    return tuple(
        ItemDigest(joined[start : start + DIGEST_BYTES])
        for start in range(0, len(joined), DIGEST_BYTES)
    )


# --- item lists --------------------------------------------------------------------------------
# Items of a conversation are numbered 0, 1, 2 ... as they are first seen, so the history of a growing conversation is
# one run. A list is its runs, each as two varints:
#
#     0 1 2 3 7 8 5  →  (+0, 4) (+3, 2) (-4, 1)      start relative to the end of the run before, length


def encode_list(numbers: Sequence[int]) -> bytes:
    out = bytearray()
    end = 0
    for start, length in _runs(numbers):
        step = start - end
        _put_varint(out, step << 1 if step >= 0 else (-step << 1) - 1)
        _put_varint(out, length)
        end = start + length
    return bytes(out)


def decode_list(packed: bytes) -> list[int]:
    numbers: list[int] = []
    values = _varints(packed)
    end = 0
    for folded in values:
        start = end + (folded >> 1 if folded % 2 == 0 else -((folded + 1) >> 1))
        end = start + next(values)
        numbers.extend(range(start, end))
    return numbers


def _runs(numbers: Sequence[int]) -> Iterable[tuple[int, int]]:
    start = 0
    for index in range(1, len(numbers) + 1):
        if index == len(numbers) or numbers[index] != numbers[index - 1] + 1:
            yield numbers[start], index - start
            start = index


def _put_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _varints(packed: bytes) -> Iterator[int]:
    value = shift = 0
    for byte in packed:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield value
            value = shift = 0


# --- decisions and checkpoints -----------------------------------------------------------------


def decision_from_json(text: str) -> Decision:
    fields = from_json(text)
    return Decision(
        **{
            **fields,
            "reason": Reason(fields["reason"]),
            "match": MatchKind(fields["match"]),
            "evidence": tuple(fields["evidence"]),
            # Earlier versions wrote none.
            "stabilised": tuple(fields.get("stabilised", ())),
            "source_tier": fields["source_tier"] and Tier(fields["source_tier"]),
            "source_kind": fields["source_kind"] and AnchorKind(fields["source_kind"]),
        }
    )


def checkpoints_to_json(checkpoints: Iterable[CheckpointInfo]) -> str:
    return to_json([(c.checkpoint, c.kind, c.position, c.tier, c.bytes) for c in checkpoints])


def checkpoints_from_json(text: str, continuation: ContinuationId) -> tuple[CheckpointInfo, ...]:
    return tuple(
        CheckpointInfo(
            CheckpointId(checkpoint), continuation, AnchorKind(kind), position, Tier(tier), size
        )
        for checkpoint, kind, position, tier, size in from_json(text)
    )
