"""What the files of the disk tier say of themselves: heads of pages, states and labels as values. Pure; opens no file.

Names are digests chained over tokens, from the tenant on, so that equal beginnings have equal names. A name only finds
a file: that its tokens are the right ones is proved by comparing them when it is read.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from blake3 import blake3

from engine.api import AnchorKind, CheckpointId, ContinuationId, Retention, TenantKey
from engine.cache.disk_files import DIGEST_BYTES, Damaged
from engine.cache.prefix_index import TOKEN_BYTES
from engine.planner.residency import Label


@dataclass(frozen=True, slots=True)
class Names:
    """Of a checkpoint's files: one for each of its full pages, and that of its state and labels. `tenant` is the chain's root."""

    tenant: bytes
    pages: tuple[str, ...]
    state: str


def name_files(tenant: TenantKey, line: bytes, page_tokens: int) -> Names:
    """Names for the checkpoint at the end of `line`. O(tokens)."""
    size = page_tokens * TOKEN_BYTES
    full = len(line) - len(line) % size
    root = link = blake3(tenant.encode()).digest(DIGEST_BYTES)
    pages = []
    for start in range(0, full, size):
        link = blake3(link + line[start : start + size]).digest(DIGEST_BYTES)
        pages.append(link.hex())
    state = blake3(b"state" + link + line[full:]).hexdigest(DIGEST_BYTES)
    return Names(root, tuple(pages), state)


def page_head_bytes(page_tokens: int) -> int:
    """Length of any page's head."""
    return DIGEST_BYTES + (1 + page_tokens) * TOKEN_BYTES


def page_head(names: Names, number: int, line: bytes, page_tokens: int) -> bytes:
    """Tenant, number and tokens of a full page."""
    size = page_tokens * TOKEN_BYTES
    start = number * size
    return names.tenant + number.to_bytes(TOKEN_BYTES, "little") + line[start : start + size]


def state_head(tenant: TenantKey, line: bytes) -> bytes:
    """Tenant and all tokens up to the checkpoint."""
    return json.dumps({"tenant": tenant}).encode() + b"\n" + line


def read_state_head(head: bytes) -> tuple[TenantKey, bytes]:
    """Raises Damaged."""
    try:
        words, line = head.split(b"\n", 1)
        tenant = json.loads(words)["tenant"]
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged("its head can't be read") from error
    if not isinstance(tenant, str) or not line or len(line) % TOKEN_BYTES:
        raise Damaged("its head can't be read")
    return TenantKey(tenant), line


@dataclass(frozen=True, slots=True)
class StoredLabel:
    """A label, and what its continuation was worth when it was written."""

    checkpoint: str
    continuation: str
    kind: str
    serial: int
    priority: int
    used_at: float
    pinned_until: float | None

    @property
    def label(self) -> Label:
        return Label(
            CheckpointId(self.checkpoint),
            ContinuationId(self.continuation),
            AnchorKind(self.kind),
            self.serial,
        )

    @property
    def retention(self) -> Retention:
        return Retention(
            ContinuationId(self.continuation), self.priority, self.used_at, self.pinned_until
        )


def stored_label(label: Label, retention: Retention) -> StoredLabel:
    return StoredLabel(
        checkpoint=label.checkpoint,
        continuation=label.continuation,
        kind=label.kind,
        serial=label.serial,
        priority=retention.priority,
        used_at=retention.used_at,
        pinned_until=retention.pinned_until,
    )


def labels_head(state: str, labels: Iterable[StoredLabel]) -> bytes:
    """`state` names the state that the labels are of."""
    return json.dumps({"state": state, "labels": [asdict(label) for label in labels]}).encode()


def read_labels_head(head: bytes, state: str) -> tuple[StoredLabel, ...]:
    """Raises Damaged, also for labels of another state."""
    try:
        document = json.loads(head)
        labels = tuple(StoredLabel(**each) for each in document["labels"])
        for each in labels:
            AnchorKind(each.kind)
        owner = document["state"]
    except (ValueError, TypeError, KeyError) as error:
        raise Damaged("its labels can't be read") from error
    if owner != state:
        raise Damaged("its labels are another state's")
    if not labels:
        raise Damaged("it has no label")
    return labels
