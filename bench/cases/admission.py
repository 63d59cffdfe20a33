"""How long the decision takes whether and where a request starts, with a full store. Runs the engine's loop by hand."""

import time

from bench.in_process import InProcess
from bench.prompts import Prompts
from bench.registry import Bar, Bench, Case, Measured, WrongAnswer
from engine.api import Cancel, ContinuationId, Message, Prompt, Retention

CHECKPOINTS, PER_CONVERSATION, RUNG = 2000, 20, 16
PINNED_EACH = 10
DECISIONS = 1000
DEVICE_BYTES = 2 << 30


class Store:
    """Conversations of `PER_CONVERSATION` checkpoints each, every `PINNED_EACH`th of them pinned."""

    def __init__(self, engine: InProcess, conversations: int) -> None:
        self._engine = engine
        self._made = 0
        self.prompts = Prompts(engine.text)
        self._kept = [self._keep(number) for number in range(conversations)]

    @property
    def checkpoints(self) -> int:
        return len(self._engine.loop.scheduler.cache.checkpoints.all)

    def fork(self, number: int) -> tuple[Prompt, int]:
        """A prompt that leaves a kept one in its middle, and the position it must resume from."""
        kept = self._kept[number % len(self._kept)]
        text = kept.messages[-1].text
        message = Message("user", f"{text[: len(text) // 2]} {number} leaves here")
        new = Prompt((message,), thinking=False)
        old_ids, new_ids = self.prompts.ids(kept), self.prompts.ids(new)
        pairs = zip(old_ids, new_ids, strict=False)
        shared = next(at for at, (a, b) in enumerate(pairs) if a != b)
        return new, min(shared, len(new_ids) - 1) // RUNG * RUNG

    def decide(self, prompt: Prompt) -> tuple[float, int]:
        """Seconds from the tokens to the lane, and the token resumed from; leaves the store as it was."""
        self._made += 1
        retention = Retention(ContinuationId(f"new{self._made}"), 1, float(self._made))
        prompted = self._engine.prompted(prompt, retention)
        loop, now = self._engine.loop, time.time()
        begun = time.perf_counter()
        loop.handle(prompted)
        (entry,) = loop.scheduler.admit(now)
        taken = time.perf_counter() - begun
        loop.handle(Cancel(prompted.generate.request_id))
        return taken, getattr(entry, "reused", -1)

    def _keep(self, number: int) -> Prompt:
        prompt = self.prompts.cold(PER_CONVERSATION * RUNG + RUNG // 2)
        pinned = time.time() + 3600 if number % PINNED_EACH == 0 else None
        retention = Retention(ContinuationId(f"kept{number}"), number % 3, float(number), pinned)
        self._engine.loop.handle(self._engine.prompted(prompt, retention, ladder=RUNG))
        self._engine.finish()
        return prompt


def admission(bench: Bench) -> Measured:
    """Half of the requests go on from a stored state in its middle, half are new."""
    engine = InProcess(bench.model, bench.threads, device_bytes=DEVICE_BYTES, context_tokens=2048)
    store = Store(engine, bench.share(CHECKPOINTS) // PER_CONVERSATION)
    times = []
    for number in range(bench.share(DECISIONS)):
        prompt, expected = (
            store.fork(number) if number % 2 else (store.prompts.cold(PER_CONVERSATION * RUNG), 0)
        )
        taken, reused = store.decide(prompt)
        if reused != expected:
            raise WrongAnswer(f"a prompt shall resume from token {expected}, not {reused}")
        times.append(taken * 1000)
    times.sort()
    p99, median = times[len(times) * 99 // 100], times[len(times) // 2]
    return Measured(f"{p99:.2f} ms p99", f"{median:.2f} ms median, {store.checkpoints} held", p99)


CASES = (
    Case(
        "admission",
        "admission decision with 2,000 checkpoints, p99",
        Bar(1, at_least=False, unit=" ms"),
        admission,
        models=("demo",),
    ),
)
