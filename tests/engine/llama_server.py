"""llama.cpp, as xllamacpp packs it, on token ids: greedy tokens and every log-probability. Knows nothing of our engine."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import xllamacpp

CONTEXT_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """`tokens` [n] greedy ones; `logprobs` [n, vocab] fp32 before each; `drafted` tokens proposed by multi-token prediction."""

    tokens: list[int]
    logprobs: torch.Tensor
    drafted: int


def answer(
    file: Path, prompt: Sequence[int], count: int, vocab: int, draft_tokens: int = 0
) -> Answer:
    """Greedy `count` tokens after `prompt`, all in fp32. With `draft_tokens` the multi-token prediction layer proposes so many."""
    server = xllamacpp.Server(_parameters(file, draft_tokens))
    reply = server.handle_completions(
        {
            "prompt": list(prompt),
            "max_tokens": count,
            "temperature": 0,
            "logprobs": vocab,
            "samplers": ["temperature"],
            "cache_prompt": False,
        }
    )
    steps = reply["choices"][0]["logprobs"]["content"]
    assert len(steps) == count, reply
    logprobs = torch.full((count, vocab), float("nan"))
    for row, step in zip(logprobs, steps, strict=True):
        for entry in step["top_logprobs"]:
            row[entry["id"]] = entry["logprob"]
    drafted = reply["timings"].get("draft_n", 0)
    return Answer([step["id"] for step in steps], logprobs, drafted)


def _parameters(file: Path, draft_tokens: int) -> xllamacpp.CommonParams:
    """Everything fp32: its defaults, fp16 keys and values and fused attention, are a thousandth off."""
    kinds, flash = xllamacpp.ggml_type, xllamacpp.llama_flash_attn_type
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(file)
    parameters.cache_type_k = parameters.cache_type_v = kinds.GGML_TYPE_F32
    parameters.flash_attn_type = flash.LLAMA_FLASH_ATTN_TYPE_DISABLED
    parameters.n_ctx, parameters.n_parallel = CONTEXT_TOKENS, 1
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.warmup = False
    parameters.verbosity = 1
    if draft_tokens:
        drafts = xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_MTP
        parameters.speculative.types = [drafts]
        parameters.speculative.draft.n_max = draft_tokens
    return parameters
