"""Other engines, each in a process of its own, asked for greedy tokens and the time they took. Knows how they're called, not why.

A peer's process sleeps while it isn't asked, so that it takes nothing from whoever is measured beside it.
"""

import importlib
import multiprocessing
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

TOP = 20
"""Log-probabilities that llama.cpp is asked for when they're compared."""
STARTING_S = 120.0


@dataclass(frozen=True, slots=True)
class LlamaSettings:
    """What may be chosen for speed: the matrices' format, fused attention with keys and values of fp16, tokens a batch."""

    matrices: str
    fused: bool
    batch_tokens: int

    def __str__(self) -> str:
        attention = "flash, KV f16" if self.fused else "KV f32"
        return f"{self.matrices}, {attention}, ubatch {self.batch_tokens}"


EXACT = LlamaSettings("f32", False, 512)
"""The settings whose tokens are compared with ours."""


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    """Greedy `tokens`; seconds for the prompt and for the tokens behind the first. `top` are the log-probabilities of the first
    token's likeliest candidates, where asked for.
    """

    tokens: tuple[int, ...]
    prompt_s: float
    decode_s: float
    top: dict[int, float]

    @property
    def rate(self) -> float:
        """Tokens a second behind the first."""
        return (len(self.tokens) - 1) / self.decode_s


Serve = Callable[[Sequence[int], int, bool], PeerAnswer]


class Peer:
    """Asks one peer's process. Raises RuntimeError when it has ended."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def ask(self, prompt: Sequence[int], tokens: int, top: bool = False) -> PeerAnswer:
        self._connection.send((tuple(prompt), tokens, top))
        try:
            answer: PeerAnswer = self._connection.recv()
        except EOFError:
            raise RuntimeError("a peer's process ended; its last words are above") from None
        return answer


@contextmanager
def llama(file: Path, settings: LlamaSettings, threads: int, context: int) -> Iterator[Peer]:
    """llama.cpp on a GGUF."""
    with _process(_llama, file, settings, threads, context) as peer:
        yield peer


@contextmanager
def transformers(directory: Path, threads: int) -> Iterator[Peer]:
    """transformers' generate with its cache, fp32, on a published checkpoint."""
    with _process(_transformers, directory, threads) as peer:
        yield peer


@contextmanager
def _process(target: Callable[..., None], *arguments: object) -> Iterator[Peer]:
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=target, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    if not ours.poll(STARTING_S):
        process.kill()
        raise RuntimeError("a peer's process does not start")
    try:
        ours.recv()
        yield Peer(ours)
    finally:
        ours.close()
        process.join(timeout=60)
        if process.is_alive():
            process.kill()


def _answer_all(connection: Connection, serve: Serve) -> None:
    """Until the other end is closed."""
    connection.send(None)
    while True:
        try:
            prompt, tokens, top = connection.recv()
        except EOFError:
            return
        connection.send(serve(prompt, tokens, top))


def _llama(
    connection: Connection, file: Path, settings: LlamaSettings, threads: int, context: int
) -> None:
    import xllamacpp  # type: ignore[import-untyped]

    server = xllamacpp.Server(_llama_parameters(xllamacpp, file, settings, threads, context))

    def serve(prompt: Sequence[int], tokens: int, top: bool) -> PeerAnswer:
        request: dict[str, Any] = {
            "prompt": list(prompt),
            "max_tokens": tokens,
            "temperature": 0,
            "samplers": ["temperature"],
            "cache_prompt": False,
        }
        if top:  # sorts the vocabulary for each token, so never in what is timed
            request["logprobs"] = TOP
        reply = server.handle_completions(request)
        if "choices" not in reply:
            raise RuntimeError(f"llama.cpp refused: {reply}")
        return _llama_answer(reply)

    _answer_all(connection, serve)


def _llama_answer(reply: dict[str, Any]) -> PeerAnswer:
    """Each word of the text names its token (bench.gguf_file). llama.cpp's clock for the answer begins with the first token."""
    choice, timings = reply["choices"][0], reply["timings"]
    steps = (choice.get("logprobs") or {"content": ()})["content"]
    return PeerAnswer(
        tokens=tuple(map(int, re.findall(r"<(\d+)>", choice["text"]))),
        prompt_s=timings["prompt_ms"] / 1000,
        decode_s=timings["predicted_ms"] / 1000,
        top={each["id"]: each["logprob"] for each in steps[0]["top_logprobs"]} if steps else {},
    )


def _llama_parameters(
    xllamacpp: Any, file: Path, settings: LlamaSettings, threads: int, context: int
) -> Any:
    kinds, flash = xllamacpp.ggml_type, xllamacpp.llama_flash_attn_type
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(file)
    kind = kinds.GGML_TYPE_F16 if settings.fused else kinds.GGML_TYPE_F32
    parameters.cache_type_k = parameters.cache_type_v = kind
    parameters.flash_attn_type = (
        flash.LLAMA_FLASH_ATTN_TYPE_ENABLED
        if settings.fused
        else flash.LLAMA_FLASH_ATTN_TYPE_DISABLED
    )
    parameters.n_ctx, parameters.n_parallel = context, 1
    parameters.n_batch = max(2048, settings.batch_tokens)
    parameters.n_ubatch = settings.batch_tokens
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
    # Nothing is kept between requests, so nothing is spent on keeping it.
    parameters.cache_ram_mib = parameters.n_ctx_checkpoints = 0
    parameters.verbosity = 0
    return parameters


class Clock:
    """A streamer that notes when tokens come. It is given the prompt first."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, value: object) -> None:
        self.times.append(time.perf_counter())

    def end(self) -> None:
        """Nothing is left to note."""


def _transformers(connection: Connection, directory: Path, threads: int) -> None:
    # Its threads wait for each other as our engine's do, or a busy machine would slow one side down and not the other.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    import torch

    library: Any = importlib.import_module("transformers")
    torch.set_num_threads(threads)
    library.utils.logging.disable_progress_bar()
    library.utils.logging.set_verbosity_error()
    model = library.Qwen3_5ForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None  # what a request leaves open is taken from here

    def serve(prompt: Sequence[int], tokens: int, top: bool) -> PeerAnswer:
        clock = Clock()
        greedy = library.GenerationConfig(max_new_tokens=tokens, do_sample=False, use_cache=True)
        begun = time.perf_counter()
        with torch.inference_mode():
            out = model.generate(torch.tensor([prompt]), generation_config=greedy, streamer=clock)
        _, first, *_ = clock.times
        return PeerAnswer(
            tokens=tuple(out[0, len(prompt) :].tolist()),
            prompt_s=first - begun,
            decode_s=clock.times[-1] - first,
            top={},
        )

    _answer_all(connection, serve)
