"""Answers and evidence made by hand, for tests of the checks. Knows both dialects as little as needed."""

import json
from typing import Any

from tests.cases.answer import Answer
from tests.cases.evidence import Evidence
from tests.cases.sse import Stream

CONTROL = 999


class SpelledPrompt:
    """A prompt's tokens as code points, CONTROL as a control token."""

    def whole(self, tokens: Any) -> str:
        return "".join("<c>" if token == CONTROL else chr(token) for token in tokens)

    def plain(self, tokens: Any) -> str:
        return "".join("\0" if token == CONTROL else chr(token) for token in tokens)

    def control_tokens(self, tokens: Any) -> int:
        return list(tokens).count(CONTROL)


def tokens(text: str) -> tuple[int, ...]:
    return tuple(map(ord, text))


def usage(read: int, cached: int, said: int) -> dict[str, Any]:
    return {
        "input_tokens": read,
        "output_tokens": said,
        "total_tokens": read + said,
        "input_tokens_details": {"cached_tokens": cached},
    }


def message(text: str, id: str = "msg_1") -> dict[str, Any]:
    return {"id": id, "type": "message", "content": [{"type": "output_text", "text": text}]}


def thought(text: str, id: str = "rs_1") -> dict[str, Any]:
    return {"id": id, "type": "reasoning", "content": [{"type": "reasoning_text", "text": text}]}


def call(name: str, arguments: str, id: str = "fc_1", call_id: str = "call_1") -> dict[str, Any]:
    return {
        "id": id,
        "type": "function_call",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
    }


def answered(
    *items: dict[str, Any],
    id: str = "resp_a",
    status: int = 200,
    read: int = 100,
    cached: int = 0,
    said: int = 10,
    slot: int | None = 0,
    sent: dict[str, Any] | None = None,
    **more: Any,
) -> Answer:
    """A response that came in one piece."""
    body = {
        "id": id,
        "status": "completed",
        "output": list(items),
        "usage": usage(read, cached, said),
    }
    explained = {"slot": slot, "reused_tokens": cached, "reason": "cache_hit", "detail": ""}
    return Answer(
        "m",
        "/v1/responses",
        sent or {},
        status=status,
        json=body | more,
        ended_s=1.0,
        explained=explained,
        prompt=tokens("p" * read),
    )


def refused(status: int, **error: Any) -> Answer:
    return Answer("m", "/v1/responses", {}, status=status, json={"error": error}, ended_s=0.1)


def streamed(*events: dict[str, Any], every_s: float = 1.0, done: bool = True) -> Answer:
    """A response as a stream, one event each `every_s`."""
    stream = Stream()
    for number, event in enumerate(events):
        stream.feed(f"data: {json.dumps(event)}\n\n".encode(), every_s * (number + 1))
    if done:
        stream.feed(b"data: [DONE]\n\n", every_s * (len(events) + 1))
    stream.end()
    ended = every_s * (len(events) + 2)
    return Answer("m", "/v1/responses", {}, status=200, stream=stream, ended_s=ended)


def delta(text: str, index: int = 0, item_id: str = "msg_1") -> dict[str, Any]:
    return {
        "type": "response.output_text.delta",
        "delta": text,
        "output_index": index,
        "item_id": item_id,
    }


def opened(item: dict[str, Any], index: int = 0) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def closed(item: dict[str, Any], index: int = 0) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def ended(*items: dict[str, Any], status: str = "completed", **more: Any) -> dict[str, Any]:
    response = {"id": "resp_a", "status": status, "output": list(items), **more}
    return {"type": f"response.{status}", "response": response}


def seen(**answers: Answer) -> Evidence:
    return Evidence(SpelledPrompt(), answers=answers)
