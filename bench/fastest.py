"""llama.cpp at its best: which settings are the fastest for a model and a task, found by trying. Knows settings, not what they do."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product

from bench.gguf_file import FORMATS
from bench.peer import EXACT, LlamaSettings, Peer, PeerAnswer, llama
from bench.prompts import Prompts
from bench.registry import Bench, WrongAnswer, require_equal

TRIAL_ANSWER = 48
BATCHES = (512, 2048)
DRIFT = 0.05
"""How far the fastest settings' log-probabilities may lie from the exact ones: fp16 rounds, wrong tensors do far worse."""


@contextmanager
def open_llama(bench: Bench, settings: LlamaSettings) -> Iterator[Peer]:
    file = bench.model.gguf(settings.matrices)
    with llama(file, settings, bench.threads, bench.context_tokens) as peer:
        yield peer


def fastest(bench: Bench, prompt: int, cost: Callable[[PeerAnswer], float]) -> LlamaSettings:
    """The settings of least `cost` for a prompt of `prompt` tokens and a short answer among those that compute near enough to the
    exact ones, each tried twice on a running server.
    """
    prompts = Prompts(bench.model.text, seed=99)
    ids = prompts.ids(prompts.cold(prompt))
    with open_llama(bench, EXACT) as peer:
        exact = peer.ask(ids, 1, top=True).top
    costs: dict[LlamaSettings, float] = {}
    for matrices, fused, batch in product(FORMATS, (True, False), BATCHES):
        settings = LlamaSettings(matrices, fused, batch)
        with open_llama(bench, settings) as peer:
            if _drift(exact, peer.ask(ids, 1, top=True).top) <= DRIFT:
                costs[settings] = min(cost(peer.ask(ids, TRIAL_ANSWER)) for _ in range(2))
    return min(costs, key=lambda settings: costs[settings])


def check_llama(
    bench: Bench, chosen: LlamaSettings, ids: tuple[int, ...], ours: tuple[int, ...]
) -> None:
    """The gate: our greedy tokens are those of llama.cpp's exact settings, and the chosen settings stay near these. Raises WrongAnswer."""
    with open_llama(bench, EXACT) as peer:
        exact = peer.ask(ids, len(ours), top=True)
    require_equal("against llama.cpp", ours, exact.tokens)
    with open_llama(bench, chosen) as peer:
        worst = _drift(exact.top, peer.ask(ids, 1, top=True).top)
    if worst > DRIFT:
        raise WrongAnswer(f"llama.cpp with {chosen} is {worst:.3f} off its own exact settings")


def _drift(exact: dict[int, float], near: dict[int, float]) -> float:
    """The largest difference of log-probability over the tokens that both find likely."""
    both = exact.keys() & near.keys()
    return max((abs(exact[token] - near[token]) for token in both), default=float("inf"))
