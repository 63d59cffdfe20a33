"""Turn events → events of the Responses stream, in the order strict clients check. Pure; knows no SSE and no clock."""

from collections.abc import Iterator, Mapping
from typing import Any

from ninfer_proxy.errors import ProxyError
from ninfer_proxy.events import (
    Broken,
    Completed,
    ItemAdded,
    ItemDone,
    Progressed,
    ReasoningAdded,
    TextAdded,
    TurnEvent,
)
from ninfer_proxy.types import FunctionCallItem, Item, MessageItem, ReasoningItem

Payload = dict[str, Any]


class ResponsesEncoder:
    """Mutable; one for each stream: it numbers the events and knows which part is open.

    Reasoning goes out as a summary: the only form that OpenAI's clients and Open Responses both accept on a stream.
    """

    def __init__(self, opening_body: Mapping[str, Any]) -> None:
        self._opening_body = opening_body
        self._sequence = 0
        self._item_id = ""
        self._part_open = False

    def start(self) -> list[Payload]:
        return [
            self._event("response.created", response=self._opening_body),
            self.still_running(),
        ]

    def still_running(self) -> Payload:
        """Says that the turn goes on, for clients whose patience is measured in events."""
        return self._event("response.in_progress", response=self._opening_body)

    def encode(self, event: TurnEvent) -> list[Payload]:
        match event:
            case Progressed():
                return []
            case ItemAdded():
                return [self._added(event)]
            case TextAdded():
                return [*self._open_text(event.index), self._text_delta(event.index, event.text)]
            case ReasoningAdded():
                return [*self._open_summary(event.index), self._summary_delta(event)]
            case ItemDone():
                return list(self._done(event.index, event.item))
            case Completed():
                kind = "completed" if event.status == "completed" else "incomplete"
                return [self._event(f"response.{kind}", response=event.body)]
            case Broken():
                return self._broken(event.error, event.body)

    def broken(self, error: ProxyError) -> list[Payload]:
        """The end of a stream whose turn failed to say so itself."""
        failure = {"code": error.code, "message": error.message}
        return self._broken(error, {**self._opening_body, "status": "failed", "error": failure})

    def _broken(self, error: ProxyError, body: Mapping[str, Any]) -> list[Payload]:
        # OpenAI's clients read the flat fields, those of Open Responses the nested ones.
        fields = {"code": error.code, "message": error.message, "param": error.param}
        return [
            self._event("error", **fields, error={"type": error.type, **fields}),
            self._event("response.failed", response=body),
        ]

    def _event(self, kind: str, /, **fields: Any) -> Payload:
        number = self._sequence
        self._sequence += 1
        return {"type": kind, "sequence_number": number, **fields}

    def _in_item(self, kind: str, index: int, **fields: Any) -> Payload:
        return self._event(kind, item_id=self._item_id, output_index=index, **fields)

    def _added(self, event: ItemAdded) -> Payload:
        self._item_id, self._part_open = event.raw["id"], False
        return self._event("response.output_item.added", output_index=event.index, item=event.raw)

    def _open_text(self, index: int) -> list[Payload]:
        if self._part_open:
            return []
        self._part_open = True
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        return [self._in_item("response.content_part.added", index, content_index=0, part=part)]

    def _text_delta(self, index: int, text: str) -> Payload:
        return self._in_item(
            "response.output_text.delta", index, content_index=0, delta=text, logprobs=[]
        )

    def _open_summary(self, index: int) -> list[Payload]:
        if self._part_open:
            return []
        self._part_open = True
        part = {"type": "summary_text", "text": ""}
        return [
            self._in_item(
                "response.reasoning_summary_part.added", index, summary_index=0, part=part
            )
        ]

    def _summary_delta(self, event: ReasoningAdded) -> Payload:
        return self._in_item(
            "response.reasoning_summary_text.delta", event.index, summary_index=0, delta=event.text
        )

    def _done(self, index: int, item: Item) -> Iterator[Payload]:
        match item:
            case MessageItem():
                yield from self._message_done(index, item)
            case ReasoningItem():
                yield from self._reasoning_done(index, item)
            case FunctionCallItem():
                yield from self._call_done(index, item)
            case _:
                raise AssertionError(f"no turn gives an item of type {type(item).__name__}")
        yield self._event("response.output_item.done", output_index=index, item=item.raw)

    def _message_done(self, index: int, item: MessageItem) -> Iterator[Payload]:
        yield from self._open_text(index)
        part = item.raw["content"][0]
        yield self._in_item(
            "response.output_text.done", index, content_index=0, text=item.text, logprobs=[]
        )
        yield self._in_item("response.content_part.done", index, content_index=0, part=part)

    def _reasoning_done(self, index: int, item: ReasoningItem) -> Iterator[Payload]:
        yield from self._open_summary(index)
        part = {"type": "summary_text", "text": item.text}
        yield self._in_item(
            "response.reasoning_summary_text.done", index, summary_index=0, text=item.text
        )
        yield self._in_item(
            "response.reasoning_summary_part.done", index, summary_index=0, part=part
        )

    def _call_done(self, index: int, item: FunctionCallItem) -> Iterator[Payload]:
        kind = "response.function_call_arguments"
        yield self._in_item(f"{kind}.delta", index, delta=item.arguments)
        yield self._in_item(f"{kind}.done", index, name=item.name, arguments=item.arguments)
