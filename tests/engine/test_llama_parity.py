"""The model against llama.cpp on a tiny random checkpoint: the same greedy tokens, and every log-probability beside them."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from bench.gguf_file import tiled_order, write_gguf
from engine.models.batch import CachePools, ForwardBatch, allocate_pools
from engine.models.qwen3_5 import Qwen35Model
from engine.weights import load_model
from tests.engine.llama_server import Answer, answer
from tests.engine.tiny_weights import TEXT_CONFIG, lively_tensors, write_config

TOLERANCE = 1e-4
PROMPT, DECODED = 300, 64
PAGE_TOKENS = 16
# llama.cpp knows one dimension for keys and values of Gated DeltaNet.
GEOMETRY = {"linear_key_head_dim": 16, "linear_value_head_dim": 16}


def write_checkpoint(directory: Path, **changes: Any) -> Path:
    """A directory with the checkpoint and `model.gguf` made of it."""
    config = {**TEXT_CONFIG, **GEOMETRY, **changes}
    write_config(directory, config)
    tensors = lively_tensors(config, seed=11)
    if config["tie_word_embeddings"]:
        del tensors["lm_head.weight"]
        # At full size each token would find itself again in the head, and the answer would repeat one.
        tensors["model.language_model.embed_tokens.weight"] *= 0.1
    save_file(tensors, directory / "model.safetensors")
    write_gguf(directory, directory / "model.gguf")
    return directory


def prompt_ids() -> list[int]:
    generator = torch.Generator().manual_seed(5)
    return torch.randint(0, TEXT_CONFIG["vocab_size"], (PROMPT,), generator=generator).tolist()


class Engine:
    """Our model on one sequence. Pools start poisoned: what isn't written must not be read."""

    def __init__(self, model: Qwen35Model) -> None:
        self.model = model
        pages = -(-(PROMPT + DECODED) // PAGE_TOKENS)
        cpu = torch.device("cpu")
        self.pools: CachePools = allocate_pools(
            model.config, pages, 1, PAGE_TOKENS, model.dtype, cpu
        )
        for pool in (self.pools.kv, self.pools.recurrent, self.pools.conv):
            pool.fill_(float("nan"))
        self.table = torch.arange(pages).flip(0)
        self.done = 0

    def step(self, ids: list[int]) -> torch.Tensor:
        """Log-probabilities [vocab] behind the last of `ids`."""
        batch = ForwardBatch(
            token_ids=torch.tensor(ids),
            positions=torch.arange(self.done, self.done + len(ids)),
            starts=(0, len(ids)),
            context_lens=(self.done,),
            lanes=(0,),
            page_tables=(self.table,),
            logit_rows=torch.tensor([len(ids) - 1]),
        )
        self.done += len(ids)
        return self.model.forward(batch, self.pools)[0].log_softmax(-1)


def ours(directory: Path) -> tuple[list[int], torch.Tensor]:
    """Greedy tokens [DECODED] and the log-probabilities [DECODED, vocab] before each."""
    engine = Engine(load_model(directory, torch.device("cpu"), torch.float32))
    rows = [engine.step(prompt_ids())]
    tokens = [int(rows[-1].argmax())]
    while len(tokens) < DECODED:
        rows.append(engine.step(tokens[-1:]))
        tokens.append(int(rows[-1].argmax()))
    return tokens, torch.stack(rows)


def theirs(directory: Path, draft_tokens: int = 0) -> Answer:
    vocab = TEXT_CONFIG["vocab_size"]
    return answer(directory / "model.gguf", prompt_ids(), DECODED, vocab, draft_tokens)


@pytest.mark.parametrize("tied", [False, True], ids=["own head", "tied head"])
def test_same_tokens_and_log_probabilities(tmp_path: Path, tied: bool) -> None:
    directory = write_checkpoint(tmp_path, tie_word_embeddings=tied)
    tokens, logprobs = ours(directory)
    reply = theirs(directory)
    assert not reply.logprobs.isnan().any(), "llama.cpp left tokens out"
    assert tokens == reply.tokens
    assert len(set(tokens)) > DECODED // 4, "an answer that repeats itself proves little"
    worst = (logprobs - reply.logprobs).abs().max().item()
    print(f"worst |Δlogprob| {worst:.2e} over {logprobs.numel()} values")
    assert worst <= TOLERANCE


def test_as_many_value_heads_as_key_heads(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, linear_num_value_heads=2)
    tokens, logprobs = ours(directory)
    reply = theirs(directory)
    assert tokens == reply.tokens
    assert (logprobs - reply.logprobs).abs().max() <= TOLERANCE


def test_the_prediction_layer_is_there_and_changes_no_token(tmp_path: Path) -> None:
    """llama.cpp drafts with the converted layer. That random weights guess nothing right is no fault."""
    directory = write_checkpoint(tmp_path)
    reply = theirs(directory, draft_tokens=2)
    assert reply.drafted > DECODED
    assert reply.tokens == theirs(directory).tokens


def test_value_heads_are_paired_by_remainder() -> None:
    """Two key heads of three value heads each: place j of a GGUF belongs to key head j mod 2."""
    assert tiled_order(2, 6).tolist() == [0, 3, 1, 4, 2, 5]


def test_a_geometry_that_llama_cannot_hold_is_refused(tmp_path: Path) -> None:
    write_config(tmp_path, TEXT_CONFIG)
    with pytest.raises(ValueError, match="16 and 48"):
        write_gguf(tmp_path, tmp_path / "model.gguf")
