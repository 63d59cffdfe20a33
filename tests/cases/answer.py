"""What a request gave, in either dialect, streamed or not, and what the server told of it afterwards. Knows no check."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.cases.sse import Event, Stream

TERMINAL = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
TEXT_DELTA = "response.output_text.delta"
REASONING_DELTAS = ("response.reasoning_text.delta", "response.reasoning_summary_text.delta")
ARGUMENTS_DELTA = "response.function_call_arguments.delta"
FIRST_OUTPUT = (TEXT_DELTA, *REASONING_DELTAS, ARGUMENTS_DELTA, "response.output_item.done")


@dataclass(frozen=True, slots=True)
class Cut:
    """How a client left: prompt tokens done by then, and seconds until the engine had let go (None: it never did)."""

    prompt_tokens_done: int
    stopped_s: float | None


@dataclass(slots=True)
class Answer:
    """Mutable while it comes. `explained` is the admin API's explanation, `prompt` the prompt's tokens, `record` what
    GET /v1/responses/{id} said at the end of the case; None where there was none.
    """

    step: str
    path: str
    sent: Mapping[str, Any]
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    json: dict[str, Any] = field(default_factory=dict)
    stream: Stream | None = None
    first_byte_s: float | None = None
    ended_s: float | None = None
    began: float = 0.0
    trouble: str = ""
    cut: Cut | None = None
    explained: dict[str, Any] | None = None
    prompt: tuple[int, ...] | None = None
    record: dict[str, Any] | None = None

    @property
    def is_chat(self) -> bool:
        return self.path.endswith("/chat/completions")

    @property
    def events(self) -> list[Event]:
        return self.stream.events if self.stream else []

    # --- identity ------------------------------------------------------------------------------

    @property
    def response_id(self) -> str:
        """Of the stored response; chat completions are known under it too. "" while none is known."""
        shown = self.json.get("id") or next(
            (
                str((event.data.get("response") or event.data).get("id"))
                for event in self.events
                if (event.data.get("response") or event.data).get("id")
            ),
            "",
        )
        return "resp_" + shown.removeprefix("chatcmpl-") if self.is_chat and shown else str(shown)

    @property
    def terminal(self) -> Event | None:
        return next((each for each in reversed(self.events) if each.type in TERMINAL), None)

    @property
    def final(self) -> dict[str, Any]:
        """The response object, as it came or as the last event holds it; for chat the whole completion's."""
        if self.stream is None:
            return self.json
        return dict(self.terminal.data["response"]) if self.terminal else {}

    @property
    def error(self) -> dict[str, Any]:
        told = self.json.get("error") or self.final.get("error") or {}
        return told if isinstance(told, dict) else {"message": str(told)}

    # --- usage ---------------------------------------------------------------------------------

    @property
    def usage(self) -> dict[str, Any]:
        chunks = [event.data["usage"] for event in self.events if event.data.get("usage")]
        found = self.final.get("usage") or (chunks[-1] if chunks else None)
        return found or {}

    @property
    def input_tokens(self) -> int | None:
        return self.usage.get("prompt_tokens" if self.is_chat else "input_tokens")

    @property
    def output_tokens(self) -> int | None:
        return self.usage.get("completion_tokens" if self.is_chat else "output_tokens")

    @property
    def cached_tokens(self) -> int | None:
        details = self.usage.get(
            "prompt_tokens_details" if self.is_chat else "input_tokens_details"
        )
        return None if details is None else details.get("cached_tokens")

    # --- output --------------------------------------------------------------------------------

    @property
    def items(self) -> list[dict[str, Any]]:
        """Output items, of a stream that broke those that were done."""
        if self.final.get("output") is not None:
            return list(self.final["output"])
        return [event.data["item"] for event in self.events if event.type.endswith("item.done")]

    @property
    def message(self) -> dict[str, Any]:
        """The assistant message of a chat completion; of a stream put together."""
        if self.stream is None:
            return dict(self.json["choices"][0]["message"])
        message: dict[str, Any] = {"role": "assistant", "content": self._chunked("content")}
        if reasoning := self._chunked("reasoning_content"):
            message["reasoning_content"] = reasoning
        calls = [call for delta in self._chunk_deltas() for call in delta.get("tool_calls") or ()]
        if calls:
            message["tool_calls"] = [
                {key: value for key, value in call.items() if key != "index"} for call in calls
            ]
        return message

    @property
    def text(self) -> str:
        if self.is_chat:
            return (self.message.get("content") or "") if self.status == 200 else ""
        parts = (part for item in self._of("message") for part in item["content"])
        return "".join(part.get("text") or "" for part in parts)

    @property
    def reasoning(self) -> str:
        if self.is_chat:
            return (self.message.get("reasoning_content") or "") if self.status == 200 else ""
        parts = (part for item in self._of("reasoning") for part in item.get("content") or ())
        return "".join(part.get("text") or "" for part in parts)

    @property
    def calls(self) -> list[tuple[str, str, str]]:
        """Call id, name and arguments (JSON text) of each tool call."""
        if self.is_chat:
            made = self.message.get("tool_calls") or [] if self.status == 200 else []
            return [
                (call["id"], call["function"]["name"], call["function"]["arguments"])
                for call in made
            ]
        return [
            (item["call_id"], item["name"], item["arguments"]) for item in self._of("function_call")
        ]

    @property
    def call_ids(self) -> list[str]:
        return [call_id for call_id, _, _ in self.calls]

    @property
    def said(self) -> str:
        """All the model said, for comparing two answers: reasoning, text, calls."""
        calls = [(name, json.loads(arguments)) for _, name, arguments in self.calls]
        return json.dumps([self.reasoning, self.text, calls], sort_keys=True)

    @property
    def deltas(self) -> list[str]:
        """Each piece of text, reasoning or arguments that a stream brought."""
        if self.is_chat:
            kinds = ("content", "reasoning_content")
            return [str(d[kind]) for d in self._chunk_deltas() for kind in kinds if d.get(kind)]
        return [str(each.data["delta"]) for each in self.events if each.type.endswith(".delta")]

    @property
    def first_output_s(self) -> float | None:
        if self.stream is None:
            return self.ended_s
        if self.is_chat:
            return next((event.at for event in self.events if _speaks(event)), None)
        return next((event.at for event in self.events if event.type in FIRST_OUTPUT), None)

    @property
    def slot(self) -> Any:
        return self.explained.get("slot") if self.explained else None

    def _of(self, kind: str) -> list[dict[str, Any]]:
        return [item for item in self.items if item.get("type") == kind]

    def _chunk_deltas(self) -> list[dict[str, Any]]:
        return [
            choice.get("delta") or {}
            for event in self.events
            for choice in event.data.get("choices") or ()
        ]

    def _chunked(self, key: str) -> str:
        return "".join(delta.get(key) or "" for delta in self._chunk_deltas())


def _speaks(event: Event) -> bool:
    deltas = (choice.get("delta") or {} for choice in event.data.get("choices") or ())
    return any(value for delta in deltas for key, value in delta.items() if key != "role")
