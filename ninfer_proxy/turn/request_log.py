"""The request log: one line for each finished turn, without any content. Knows what a turn was found to be, and a file.

Digests, sessions and tenants are blinded with a secret of the data directory, so that nobody without it can try words on them; equal
ones stay equal, which is all that a replay needs. A log that can't be written is said once and holds nothing up.
"""

import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from blake3 import blake3

from ninfer_proxy.errors import StartRefused
from ninfer_proxy.identity.canonical import digests
from ninfer_proxy.identity.clients import is_summary, may_be_summary
from ninfer_proxy.items import SYSTEM_ROLES
from ninfer_proxy.logged import LoggedRequest
from ninfer_proxy.turn.outcome import Outcome
from ninfer_proxy.turn.recognised import Recognised
from ninfer_proxy.types import (
    FunctionCallItem,
    FunctionOutputItem,
    Item,
    ItemDigest,
    MessageItem,
    ReasoningItem,
    TurnPlan,
)

log = logging.getLogger(__name__)

BLINDED_BYTES = 8


class RequestLog:
    """Appends to a file that only its owner can read; it is opened for each line, so it may be moved away at any time.

    Errors on making it: StartRefused when the file can't be opened.
    """

    def __init__(self, path: Path, secret: bytes) -> None:
        self._path = path
        self._key = blake3(secret).digest()
        self._is_torn = False
        self._is_failing = False
        try:
            self._append(b"")
        except OSError as error:
            raise StartRefused(
                f"The request log {path} can't be written: {error.strerror}."
            ) from error

    def write(self, recognised: Recognised, plan: TurnPlan, outcome: Outcome) -> None:
        """One line, in one piece."""
        line = ("\n" if self._is_torn else "") + self._logged(recognised, plan, outcome).line()
        content = (line + "\n").encode()
        try:
            self._is_torn = self._append(content) < len(content)
        except OSError as error:
            if not self._is_failing:
                log.warning("the request log %s can't be written: %s", self._path, error)
            self._is_failing = True
        else:
            self._is_failing = False

    def _append(self, content: bytes) -> int:
        """Returns how many bytes were written. Errors: OSError."""
        file = os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        try:
            return os.write(file, content)
        finally:
            os.close(file)

    def _logged(self, recognised: Recognised, plan: TurnPlan, outcome: Outcome) -> LoggedRequest:
        turn, identity = recognised.turn, recognised.identity
        level, _, session = identity.scope.partition(":")
        known = (*(None for _ in range(identity.head_items)), *identity.digests)
        return LoggedRequest(
            begins=outcome.created_at,
            ends=outcome.completed_at,
            tenant=self._blinded(turn.tenant.encode()),
            conversation=recognised.conversation,
            role=recognised.match.role,
            match=recognised.match.kind,
            scope=f"{level}:{self._blinded(session.encode())}" if level else "",
            evidence=identity.scope_evidence,
            family=identity.family,
            side_kind=identity.side_kind,
            is_subagent=identity.is_subagent,
            tools=self._blinded(identity.head.tools),
            instructions=self._blinded(identity.head.instructions),
            has_instructions=bool(turn.instructions),
            head_items=identity.head_items,
            items=tuple(self._items(recognised.items, known)),
            sent=len(turn.items),
            counts=tuple(recognised.message_counts),
            borders=outcome.started.borders,
            marks=tuple(recognised.marked_borders),
            named=tuple(recognised.owners),
            parent=recognised.parent,
            prompt_tokens=outcome.started.prompt_tokens,
            reused_tokens=outcome.usage.cached_tokens,
            output=tuple(self._items(outcome.output, digests(outcome.output))),
            output_tokens=outcome.usage.output_tokens,
            status=outcome.status,
            reason=outcome.decision.reason,
            slot=plan.slot,
        )

    def _items(self, items: Sequence[Item], known: Sequence[ItemDigest | None]) -> Iterable[str]:
        return (
            f"{kind_of(item)}:{'' if digest is None else self._blinded(digest)}"
            for item, digest in zip(items, known, strict=True)
        )

    def _blinded(self, content: bytes) -> str:
        return blake3(content, key=self._key).hexdigest(length=BLINDED_BYTES)


def kind_of(item: Item) -> str:
    """The letter of an item's kind, as LoggedRequest lists them."""
    match item:
        case MessageItem(role=role) if role in SYSTEM_ROLES:
            return "s"
        case MessageItem(role="assistant"):
            return "a"
        case MessageItem(text=text):
            return "m" if is_summary(text) else "n" if may_be_summary(text) else "u"
        case FunctionCallItem():
            return "c"
        case FunctionOutputItem():
            return "o"
        case ReasoningItem():
            return "r"
    return "x"
