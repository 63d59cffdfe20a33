"""Engine deltas → output items and turn events. Pure: ids come from the caller; knows no wire framing and no store."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.api import Delta, DeltaKind
from ninfer_proxy.events import ItemAdded, ItemDone, ReasoningAdded, TextAdded, TurnEvent
from ninfer_proxy.types import FunctionCallItem, Item, MessageItem, ReasoningItem

NewId = Callable[[str], str]
"""An id with the given prefix, such as `msg` → `msg_5f0c…`."""

_PREFIX = {DeltaKind.TEXT: "msg", DeltaKind.REASONING: "rs"}


@dataclass(slots=True)
class _Open:
    """The item that is being written. Until `shown` its text is white space only and no client knows of it."""

    kind: DeltaKind
    item_id: str
    shown: bool = False
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class OutputBuilder:
    """Mutable; one for each turn. Feed deltas to `add`, then call `finish` once.

    Models put white space between reasoning, text and calls. White space that nothing follows makes no item; the
    token ledger keeps it for the replay.
    """

    def __init__(self, new_id: NewId, *, encrypted_reasoning: bool = False) -> None:
        """`encrypted_reasoning`: give reasoning items an opaque token that clients send back with the item."""
        self._new_id = new_id
        self._encrypted_reasoning = encrypted_reasoning
        self._open: _Open | None = None
        self._items: list[Item] = []

    @property
    def output(self) -> tuple[Item, ...]:
        """The items that are done, in order."""
        return tuple(self._items)

    def add(self, delta: Delta) -> list[TurnEvent]:
        """Take one delta; give the events it causes. Ends the open item where the kind changes."""
        if delta.kind is DeltaKind.TOOL_CALL:
            assert delta.call is not None, "a tool call delta carries its call"
            return [*self._close("completed"), *self._call(*delta.call)]
        if not delta.text:
            return []
        events: list[TurnEvent] = []
        if self._open is None or self._open.kind is not delta.kind:
            events = self._close("completed")
            self._open = _Open(delta.kind, self._new_id(_PREFIX[delta.kind]))
        return [*events, *self._extend(self._open, delta.text)]

    def finish(self, *, cut: bool) -> list[TurnEvent]:
        """End the turn's output. `cut`: generation was stopped by a limit or cancelled, so the last item is incomplete.

        A turn that produced nothing gets one empty message, since clients expect an answer.
        """
        status = "incomplete" if cut else "completed"
        events = self._close(status)
        if not self._items:
            self._open = _Open(DeltaKind.TEXT, self._new_id("msg"))
            events = [*events, self._show(self._open), *self._close(status)]
        return events

    def _extend(self, open_item: _Open, text: str) -> list[TurnEvent]:
        open_item.pieces.append(text)
        if open_item.shown:
            return [self._added_text(open_item, text)]
        if not open_item.text.strip():
            return []
        return [self._show(open_item), self._added_text(open_item, open_item.text)]

    def _show(self, open_item: _Open) -> TurnEvent:
        open_item.shown = True
        if open_item.kind is DeltaKind.REASONING:
            raw = self._reasoning_raw(open_item.item_id, None, "in_progress")
        else:
            raw = message_raw(open_item.item_id, None, "in_progress")
        return ItemAdded(len(self._items), raw)

    def _added_text(self, open_item: _Open, text: str) -> TurnEvent:
        event = ReasoningAdded if open_item.kind is DeltaKind.REASONING else TextAdded
        return event(len(self._items), text)

    def _close(self, status: str) -> list[TurnEvent]:
        open_item, self._open = self._open, None
        if open_item is None or not open_item.shown:
            return []
        text = open_item.text
        if open_item.kind is DeltaKind.REASONING:
            raw = self._reasoning_raw(open_item.item_id, text, status)
            return [self._done(ReasoningItem(text, raw.get("encrypted_content"), raw))]
        return [
            self._done(MessageItem("assistant", text, message_raw(open_item.item_id, text, status)))
        ]

    def _call(self, name: str, arguments: str) -> list[TurnEvent]:
        item_id, call_id = self._new_id("fc"), self._new_id("call")
        raw = call_raw(item_id, call_id, name, arguments, "completed")
        opening = call_raw(item_id, call_id, name, "", "in_progress")
        added = ItemAdded(len(self._items), opening)
        return [added, self._done(FunctionCallItem(call_id, name, arguments, raw))]

    def _done(self, item: Item) -> TurnEvent:
        self._items.append(item)
        return ItemDone(len(self._items) - 1, item)

    def _reasoning_raw(self, item_id: str, text: str | None, status: str) -> dict[str, Any]:
        raw = reasoning_raw(item_id, text, status)
        # The item's own id is token enough: it names the stored reasoning, and clients send it back unchanged.
        return raw | {"encrypted_content": item_id} if self._encrypted_reasoning else raw


def message_raw(item_id: str, text: str | None, status: str) -> dict[str, Any]:
    """An assistant message in Responses form; `text` None while it has no content part yet."""
    part: Mapping[str, Any] = {
        "type": "output_text",
        "text": text,
        "annotations": [],
        "logprobs": [],
    }
    return {
        "id": item_id,
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": [] if text is None else [part],
    }


def reasoning_raw(item_id: str, text: str | None, status: str) -> dict[str, Any]:
    """A reasoning item in Responses form: the same text as summary (what all clients show) and as content."""
    shown = text is not None
    return {
        "id": item_id,
        "type": "reasoning",
        "status": status,
        "summary": [{"type": "summary_text", "text": text}] if shown else [],
        "content": [{"type": "reasoning_text", "text": text}] if shown else [],
    }


def call_raw(item_id: str, call_id: str, name: str, arguments: str, status: str) -> dict[str, Any]:
    """A function call in Responses form; `arguments` is JSON text."""
    return {
        "id": item_id,
        "type": "function_call",
        "status": status,
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
    }
