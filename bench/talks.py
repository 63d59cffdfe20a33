"""An agent's conversation from its client's side: what it sends, and what it does with what it hears. Pure; the same for the same name.

user  (call output)×4  answer  user  (call output)×4  answer  …      the calls and answers are the model's
"""

import json
from collections.abc import Sequence
from random import Random
from typing import Any

Wire = dict[str, Any]

CALLS_A_ROUND = 4
INSTRUCTIONS_BYTES, TOOLS, TOOL_BYTES = 38_000, 12, 800
"""As OpenClaw sends them."""
WORDS = (
    *["the", "file", "shows", "that", "this", "value", "was", "read", "before", "a", "new", "test", "could", "start", "so", "it", "fails"],
    *["again", "with", "path/to/module.py", "line", "41:", "error", "'type'", '"name"', "return", "self.items[index]"],
    "\n",
)  # fmt: skip


class Talk:
    """One conversation; `items` are its history, about `item_bytes` each on average, most of them in the outputs of calls."""

    def __init__(self, name: str, item_bytes: int) -> None:
        self._random = Random(name)
        self._item_bytes = item_bytes
        self.name = name
        self.items: list[Wire] = []
        self._ask()

    def hear(self, output: Sequence[Wire]) -> None:
        """Keeps what the model said, runs the call if it is one, asks something more if it isn't."""
        self.items += output
        if output[-1]["type"] == "function_call":
            self._answer(output[-1]["call_id"])
        else:
            self._ask()

    def request(self) -> Wire:
        """What the client sends now, its whole history in it."""
        return {**HEAD, "input": self.items, "prompt_cache_key": self.name}

    def _ask(self) -> None:
        content = [{"type": "input_text", "text": text_of(self._random, self._item_bytes // 4)}]
        self.items.append({"type": "message", "role": "user", "content": content})

    def _answer(self, call_id: str) -> None:
        # Of a round's ten items the four outputs hold nearly all.
        text = text_of(self._random, self._item_bytes * 2)
        self.items.append({"type": "function_call_output", "call_id": call_id, "output": text})


def text_of(random: Random, size: int) -> str:
    """About `size` characters of words, paths and numbers."""
    words: list[str] = []
    length = 0
    while length < size:
        words.append(random.choice(WORDS) if random.random() < 0.9 else random.randbytes(4).hex())
        length += len(words[-1]) + 1
    return " ".join(words)


def call_arguments(number: int) -> str:
    """What the model calls a tool with."""
    return json.dumps({"command": f"sed -n {number},{number + 80}p path/to/module.py", "wait": 30})


def _head() -> Wire:
    random = Random("head")
    parameters = {"type": "object", "properties": {"command": {"type": "string"}}}
    tools = [
        {
            "type": "function",
            "name": f"tool_{number}",
            "description": text_of(random, TOOL_BYTES),
            "parameters": parameters,
        }
        for number in range(TOOLS)
    ]
    return {"model": "agent", "instructions": text_of(random, INSTRUCTIONS_BYTES), "tools": tools}


HEAD = _head()
