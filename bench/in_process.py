"""The engine's loop in this process, driven by hand, for what can't be seen through the door: single decisions, operators. No timing."""

import time
from itertools import count
from typing import Any

from bench.models import BenchModel
from engine.api import Event, Generate, Prompt, RequestId, Retention, TenantKey
from engine.assemble import assemble
from engine.config import EngineConfig
from engine.heap import keep_freed_memory
from engine.loop import Loop
from engine.turns import Prompted

TENANT = TenantKey("t")


class InProcess:
    """A loaded engine. No token ends an answer. `config` are changes to EngineConfig's defaults."""

    def __init__(self, model: BenchModel, threads: int, **config: Any) -> None:
        whole = EngineConfig(model_dir=str(model.directory), threads=threads, **config)
        self._events: list[Event] = []
        assembly = assemble(whole, "bench", self._events.extend, time.time, lambda: 0)
        keep_freed_memory()
        self.loop: Loop = assembly.loop
        self.loop.stop_token_ids = frozenset()
        self.text = assembly.text
        self._numbers = count(1)

    def prompted(
        self, prompt: Prompt, retention: Retention, tokens: int = 1, ladder: int | None = None
    ) -> Prompted:
        """A request as the loop takes it, its prompt rendered."""
        generate = Generate(
            request_id=RequestId(f"r{next(self._numbers)}"),
            tenant=TENANT,
            continuation=retention.continuation,
            prompt=prompt,
            retention=retention,
            max_tokens=tokens,
            ladder_tokens=ladder,
            save_tip=False,
        )
        rendered, output = self.text.render(prompt), self.text.open_stream(prompt)
        return Prompted(generate, rendered.token_ids, rendered.borders, rendered.opener, output)

    def finish(self) -> int:
        """Steps until nothing runs; how many there were."""
        steps = 0
        while self.loop.turns:
            self.loop.step()
            steps += 1
        return steps
