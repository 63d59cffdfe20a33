"""One growing conversation of the demo model's data: what was told, what is offered, how turns are written down."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from tools.demo_agent import Shell, carrier, stamp
from tools.demo_facts import Fact

Message = dict[str, Any]


@dataclass(slots=True)
class Mode:
    """How the conversation is rendered: `effort` and `preserve` are template variables."""

    thinking: bool = True
    effort: str = "xhigh"
    preserve: bool = True
    stamped: bool = False
    carried: bool = False
    keep_carriers: bool = False
    dropped: bool = False


@dataclass(slots=True)
class Scene:
    """Messages so far and what later turns may refer to. `held` selects phrasings and values never trained on,
    `short` keeps texts to read short, `varied` takes command lines of all kinds."""

    rng: Random
    mode: Mode
    messages: list[Message] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)
    shell: Shell | None = None
    facts: list[Fact] = field(default_factory=list)
    output: str | None = None
    held: bool = False
    short: bool = False
    varied: bool = False

    def user(self, text: str) -> None:
        """Adds a user message, with timestamp and carrier as the mode says; an earlier carrier may vanish."""
        if self.mode.stamped:
            text = stamp(self.rng) + text
        if not self.mode.keep_carriers:
            self.messages = [m for m in self.messages if not m.get("carrier")]
        self.messages.append({"role": "user", "content": text})
        if self.mode.carried:
            item = {"role": "user", "content": carrier(self.rng), "carrier": True}
            self.messages.append(item)

    def assistant(self, text: str, thought: str, call: dict[str, Any] | None = None) -> None:
        message: Message = {"role": "assistant", "content": text}
        if self.mode.thinking:
            message["reasoning_content"] = thought
        if call:
            message["tool_calls"] = [{"type": "function", "function": call}]
        self.messages.append(message)

    def turn(self, user: str, answer: str, thought: str) -> None:
        self.user(user)
        self.assistant(answer, thought)

    def tool(self, output: str) -> None:
        self.messages.append({"role": "tool", "content": output})

    def chars(self) -> int:
        return sum(len(m["content"]) + 24 for m in self.messages)
