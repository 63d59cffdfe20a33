"""Feeds tokens to an output stream whole, and writes the calls a model might write. Knows no test."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from engine.api import DeltaKind, FinishReason, Message, Prompt, ToolSpec
from engine.text.channels import Piece
from engine.text.model import TextModel

STRING = {"type": "string"}


def tool(name: str, required: Sequence[str] = (), **properties: object) -> ToolSpec:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return ToolSpec(name, None, schema)


TOOLS = (
    tool("read_file", ["path"], path=STRING, limit={"type": "integer"}),
    tool("write_file", ["path", "content"], path=STRING, content=STRING),
    tool("run", ["cmd"], cmd=STRING, background={"type": "boolean"}),
    tool(
        "find",
        ["pattern"],
        pattern=STRING,
        kinds={"type": "array", "items": STRING},
        opts={"type": "object"},
    ),
)


@dataclass
class Output:
    reasoning: str
    text: str
    calls: list[tuple[str, object]]
    pieces: list[Piece]
    stopped: bool
    reasoning_tokens: int


def run(
    model: TextModel,
    tokens: Sequence[int],
    *,
    thinking: bool = False,
    stop: Sequence[str] = (),
    reason: FinishReason = FinishReason.STOP,
    tools: tuple[ToolSpec, ...] = TOOLS,
    allow_tools: bool = True,
) -> Output:
    prompt = Prompt((Message("user", "Go."),), tools=tools, thinking=thinking)
    stream = model.open_stream(prompt, stop, allow_tools)
    pieces = [piece for token in tokens for piece in stream.feed(token)]
    pieces += stream.finish(reason)

    def joined(kind: DeltaKind) -> str:
        return "".join(piece.text for piece in pieces if piece.kind == kind)

    calls = [(piece.call[0], json.loads(piece.call[1])) for piece in pieces if piece.call]
    text, reasoning = joined(DeltaKind.TEXT), joined(DeltaKind.REASONING)
    return Output(reasoning, text, calls, pieces, stream.stopped, stream.reasoning_tokens)


def xml(name: str, **values: str) -> str:
    given = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<tool_call>\n<function={name}>\n{given}</function>\n</tool_call>"


LS = xml("run", cmd="ls")
