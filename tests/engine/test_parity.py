"""The model against transformers' Qwen3.5 on tiny random weights: every log-probability, whatever way the tokens come in."""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch

from engine.models.batch import CachePools, ForwardBatch, allocate_pools
from engine.models.graph import Row
from engine.models.qwen3_5 import Qwen35Model
from engine.ops import native
from engine.weights import fill_model, load_model
from tests.engine.tiny_weights import write_tiny_weights

CPU = torch.device("cpu")
TOLERANCE = 1e-4
PAGE_TOKENS = 16
LANES = 4
PROMPT = 203
DECODED = 24


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("weights")
    write_tiny_weights(directory)
    return directory


@pytest.fixture(scope="module", params=["C", "torch"])
def model(directory: Path, request: pytest.FixtureRequest) -> Iterator[Qwen35Model]:
    """With either kind of CPU kernels."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "torch":
            patch.setattr(native, "library", lambda: None)
        yield load_model(directory, CPU, torch.float32)


@pytest.fixture(scope="module")
def sequences() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [
        torch.randint(0, 320, (length,), generator=generator)
        for length in (PROMPT + DECODED, 97, 150)
    ]


@pytest.fixture(scope="module")
def expected(directory: Path, sequences: list[torch.Tensor]) -> list[torch.Tensor]:
    """Reference log-probabilities [T, vocab] of each sequence, from one uncached pass."""
    return transformers_logprobs(directory, sequences, torch.float32)


def transformers_logprobs(
    directory: Path, sequences: list[torch.Tensor], dtype: torch.dtype
) -> list[torch.Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import Qwen3_5ForCausalLM

        reference = Qwen3_5ForCausalLM.from_pretrained(
            directory, dtype=dtype, attn_implementation="eager"
        ).eval()
        with torch.inference_mode():
            return [
                reference(ids[None], use_cache=False).logits[0].log_softmax(-1) for ids in sequences
            ]


class Runner:
    """Feeds chunks of sequences through the model. Pools start poisoned: what isn't written must not be read."""

    def __init__(self, model: Qwen35Model) -> None:
        self.model = model
        self.pools = poisoned_pools(model)
        free = torch.randperm(64, generator=torch.Generator().manual_seed(1))
        self.tables = free[: LANES * 16].view(LANES, 16)
        self.done = [0] * LANES
        self.repeated = 0

    def step(self, chunks: Sequence[tuple[int, torch.Tensor]]) -> list[torch.Tensor]:
        """One forward over (lane, tokens) chunks; log-probabilities [n, vocab] of each."""
        lengths = [len(ids) for _, ids in chunks]
        starts = tuple(sum(lengths[:i]) for i in range(len(lengths) + 1))
        lanes = tuple(lane for lane, _ in chunks)
        context = tuple(self.done[lane] for lane in lanes)
        token_ids = torch.cat([ids for _, ids in chunks])
        if set(lengths) == {1} and all(context):
            logits = self._repeat(token_ids, lanes, context)
        else:
            logits = self._forward(token_ids, starts, lanes, context)
        for lane, length in zip(lanes, lengths, strict=True):
            self.done[lane] += length
        return list(logits.log_softmax(-1).split(lengths))

    def _forward(
        self,
        token_ids: torch.Tensor,
        starts: tuple[int, ...],
        lanes: tuple[int, ...],
        context: tuple[int, ...],
    ) -> torch.Tensor:
        ends = zip(context, starts, starts[1:], strict=False)
        batch = ForwardBatch(
            token_ids=token_ids,
            positions=torch.cat([torch.arange(c, c + b - a) for c, a, b in ends]),
            starts=starts,
            context_lens=context,
            lanes=lanes,
            page_tables=tuple(self.tables[lane] for lane in lanes),
            logit_rows=torch.arange(starts[-1]),
        )
        return self.model.forward(batch, self.pools)

    def _repeat(
        self, token_ids: torch.Tensor, lanes: tuple[int, ...], context: tuple[int, ...]
    ) -> torch.Tensor:
        """Steps are repeated where the model can be recorded, as the engine does."""
        graph = self.model.recorded(self.pools, len(lanes), self.model.config.vocab_size)
        if graph is None:
            return self._forward(token_ids, tuple(range(len(lanes) + 1)), lanes, context)
        self.repeated += 1
        rows = []
        for token, length, lane in zip(token_ids.tolist(), context, lanes, strict=True):
            table = self.tables[lane]
            rows.append(
                Row(token, length, lane, int(table[length // PAGE_TOKENS]), table.data_ptr())
            )
        graph.begin(rows)
        return graph.end().clone()


def poisoned_pools(model: Qwen35Model) -> CachePools:
    cpu = torch.device("cpu")
    pools = allocate_pools(model.config, 64, LANES, PAGE_TOKENS, model.dtype, cpu)
    for pool in (pools.kv, pools.recurrent, pools.conv):
        pool.fill_(float("nan"))
    return pools


def check(name: str, got: torch.Tensor, expected: torch.Tensor) -> None:
    assert got.shape == expected.shape
    worst = (got - expected).abs().max().item()
    print(f"{name}: worst |Δlogprob| {worst:.2e} over {got.numel()} values")
    assert worst <= TOLERANCE


def test_the_reference_is_well_conditioned(
    directory: Path, sequences: list[torch.Tensor], expected: list[torch.Tensor]
) -> None:
    """Rounding alone must stay far below the tolerance, or another processor's order of sums would fail a right forward."""
    exact = transformers_logprobs(directory, sequences, torch.float64)
    worst = max((a - b).abs().max().item() for a, b in zip(expected, exact, strict=True))
    assert worst <= TOLERANCE / 4


def test_every_weight_matters(
    directory: Path, sequences: list[torch.Tensor], expected: list[torch.Tensor]
) -> None:
    """Were the weights dull, a wrong forward could pass: another tenth of any one tensor must show."""
    generator = torch.Generator().manual_seed(3)
    kinds = ("embed_tokens", "norm.", "lm_head", "layers.0.", "layers.3.")
    names = [name for name, _ in fill_model(directory, CPU, torch.float32).tensors()]
    for name in filter(lambda name: name.startswith(kinds), names):
        model = fill_model(directory, CPU, torch.float32)
        tensor = dict(model.tensors())[name]
        tensor.mul_(1 + 0.1 * torch.randn(tensor.shape, generator=generator))
        model.pack()
        (got,) = Runner(model).step([(0, sequences[1])])
        assert (got - expected[1]).abs().max() > 20 * TOLERANCE, f"{name} hardly matters"


def test_prefill(model: Qwen35Model, sequences: list[torch.Tensor], expected: list[torch.Tensor]):
    for ids, reference in zip(sequences, expected, strict=True):
        (got,) = Runner(model).step([(2, ids)])
        check(f"prefill of {len(ids)}", got, reference)


@pytest.mark.parametrize("size", [1, 2, 17, 63, 64, 65, 100])
def test_chunked_prefill(
    model: Qwen35Model, sequences: list[torch.Tensor], expected: list[torch.Tensor], size: int
) -> None:
    runner = Runner(model)
    got = torch.cat([runner.step([(1, ids)])[0] for ids in sequences[0].split(size)])
    check(f"chunks of {size}", got, expected[0])


def test_decode(model: Qwen35Model, sequences: list[torch.Tensor], expected: list[torch.Tensor]):
    runner = Runner(model)
    prompt, rest = sequences[0].split((PROMPT, DECODED))
    parts = runner.step([(0, prompt)])
    parts += [runner.step([(0, token)])[0] for token in rest.split(1)]
    check(f"prefill of {PROMPT}, then {DECODED} steps", torch.cat(parts), expected[0])
    assert runner.repeated == (DECODED if native.library() else 0)


def test_mixed_batch(
    model: Qwen35Model, sequences: list[torch.Tensor], expected: list[torch.Tensor]
) -> None:
    """Three sequences, each chunked otherwise, so that chunks, steps and one-token starts share forwards."""
    cuts = ([80, 1, 1, 64, 1, 1, 1, 7, 71], [1, 1, 30, 1, 1, 1, 1, 60, 1], [1, 65, 1, 1, 80, 1, 1])
    lanes = (3, 0, 2)
    chunks = [list(ids.split(cut)) for ids, cut in zip(sequences, cuts, strict=True)]
    runner = Runner(model)
    got: list[list[torch.Tensor]] = [[], [], []]
    for turn in range(9):
        active = [s for s in range(3) if turn < len(chunks[s])]
        parts = runner.step([(lanes[s], chunks[s][turn]) for s in active])
        for s, part in zip(active, parts, strict=True):
            got[s].append(part)
    for s in range(3):
        check(f"sequence {s} of a mixed batch", torch.cat(got[s]), expected[s])


def test_decode_of_many_lanes(
    model: Qwen35Model, sequences: list[torch.Tensor], expected: list[torch.Tensor]
) -> None:
    runner = Runner(model)
    lanes = (2, 0, 3)
    first = runner.step([(lane, ids[:40]) for lane, ids in zip(lanes, sequences, strict=True)])
    got = [[part] for part in first]
    for t in range(40, 90):
        for s, part in enumerate(
            runner.step(
                [(lane, ids[t : t + 1]) for lane, ids in zip(lanes, sequences, strict=True)]
            )
        ):
            got[s].append(part)
    for s in range(3):
        check(f"lane of sequence {s}", torch.cat(got[s]), expected[s][:90])


def test_a_lane_is_used_again(
    model: Qwen35Model, sequences: list[torch.Tensor], expected: list[torch.Tensor]
) -> None:
    """The state that an earlier sequence left in a lane is not read by the next one."""
    runner = Runner(model)
    runner.step([(1, sequences[1])])
    runner.done[1] = 0
    got = torch.cat([runner.step([(1, ids)])[0] for ids in sequences[2].split((1, 149))])
    check("second sequence of a lane", got, expected[2])


def test_bf16_stays_near(
    directory: Path, sequences: list[torch.Tensor], expected: list[torch.Tensor]
) -> None:
    """The dtype of larger devices: rounded activations move log-probabilities by hundredths, not by more."""
    model = load_model(directory, torch.device("cpu"), torch.bfloat16)
    runner = Runner(model)
    got = torch.cat([runner.step([(0, ids)])[0] for ids in sequences[1].split((70, 1, 26))])
    assert got.dtype == torch.float32
    difference = (got - expected[1]).abs()
    print(f"bf16: mean |Δlogprob| {difference.mean():.3f}, worst {difference.max():.3f}")
    assert difference.mean() < 0.05
    assert difference.max() < 0.5
