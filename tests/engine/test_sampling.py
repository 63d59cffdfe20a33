"""Sampling: distributions with fixed seeds, each filter at its edges, penalties, and rows that don't see each other."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch

from engine.api import Sampling
from engine.sampling import NO_TOKEN, generator_at, sample

VOCAB = 10
HOT = Sampling(temperature=1.0)
INF = float("inf")
NAN = float("nan")


def logits_of(*chances: float) -> torch.Tensor:
    return torch.tensor(chances).log()


def draws(
    logits: torch.Tensor,
    params: Sampling,
    count: int = 2000,
    counts: Mapping[int, int] | None = None,
    limit: int | None = None,
) -> Counter[int]:
    """How often each token comes out of `count` rows that are alike but for their generators."""
    tokens = sample(
        logits.expand(count, -1),
        [params] * count,
        [counts or {}] * count,
        [generator_at(11, i) for i in range(count)],
        limit or len(logits),
    )
    return Counter(tokens)


def one(logits: torch.Tensor, params: Sampling, counts: Mapping[int, int] | None = None) -> int:
    (token,) = sample(logits[None], [params], [counts or {}], [generator_at(0, 0)], len(logits))
    return token


def close_to(counter: Counter[int], chances: list[float]) -> bool:
    """Within five standard deviations for every token, and nothing impossible."""
    total = counter.total()
    return all(
        abs(counter[token] - total * p) <= 5 * (total * p * (1 - p)) ** 0.5
        for token, p in enumerate(chances)
    )


def test_greedy_rows() -> None:
    logits = torch.randn(5, VOCAB, generator=torch.Generator().manual_seed(0))
    got = sample(logits, [Sampling()] * 5, [{}] * 5, [torch.Generator()] * 5, VOCAB)
    assert got == logits.argmax(-1).tolist()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_temperature(temperature: float) -> None:
    chances = torch.tensor([0.5, 0.3, 0.15, 0.05])
    scaled = chances ** (1 / temperature)
    counter = draws(chances.log(), Sampling(temperature=temperature))
    assert close_to(counter, (scaled / scaled.sum()).tolist())


@pytest.mark.parametrize("temperature", [1e-6, 1e-40, 5e-324])
def test_tiny_temperature_is_greedy(temperature: float) -> None:
    counter = draws(torch.tensor([80.0, 80.5, -90.0]), Sampling(temperature=temperature), 50)
    assert counter == {1: 50}


def test_top_k() -> None:
    logits = logits_of(0.1, 0.4, 0.2, 0.3)
    assert close_to(draws(logits, replace(HOT, top_k=2)), [0, 4 / 7, 0, 3 / 7])
    assert draws(logits, replace(HOT, top_k=1), 50) == {1: 50}
    assert close_to(draws(logits, replace(HOT, top_k=4)), [0.1, 0.4, 0.2, 0.3])
    assert close_to(draws(logits, replace(HOT, top_k=400)), [0.1, 0.4, 0.2, 0.3])


def test_top_p_keeps_the_token_that_crosses_it() -> None:
    logits = logits_of(0.1, 0.4, 0.2, 0.3)
    assert close_to(draws(logits, replace(HOT, top_p=0.41)), [0, 4 / 7, 0, 3 / 7])
    assert close_to(draws(logits, replace(HOT, top_p=0.39)), [0, 1, 0, 0])
    assert draws(logits, replace(HOT, top_p=1e-9), 50) == {1: 50}
    assert draws(logits, replace(HOT, top_p=0.0), 50) == {1: 50}


def test_top_p_counts_within_top_k() -> None:
    """Of the two best, renormalised to 4/7 and 3/7, the first alone reaches one half."""
    params = replace(HOT, top_k=2, top_p=0.5)
    assert draws(logits_of(0.1, 0.4, 0.2, 0.3), params, 50) == {1: 50}


def test_min_p_is_relative_to_the_likeliest() -> None:
    logits = logits_of(0.1, 0.4, 0.2, 0.3)
    assert close_to(draws(logits, replace(HOT, min_p=0.6)), [0, 4 / 7, 0, 3 / 7])
    assert draws(logits, replace(HOT, min_p=1.0), 50) == {1: 50}
    assert draws(logits, replace(HOT, min_p=7.0), 50) == {1: 50}


def test_filters_after_temperature() -> None:
    """At temperature 2 the best token has 0.41 of the mass instead of 0.65, so top_p 0.6 lets a second one in."""
    logits = logits_of(0.65, 0.2, 0.15)
    assert set(draws(logits, replace(HOT, top_p=0.6), 200)) == {0}
    assert set(draws(logits, Sampling(temperature=2.0, top_p=0.6), 200)) == {0, 1}


def test_presence_and_frequency() -> None:
    logits = torch.tensor([2.0, 1.9, 0.0])
    assert one(logits, Sampling(presence_penalty=0.5), {0: 3}) == 1
    assert one(logits, Sampling(presence_penalty=0.05), {0: 30}) == 0
    assert one(logits, Sampling(frequency_penalty=0.05), {0: 3}) == 1
    assert one(logits, Sampling(frequency_penalty=0.05), {0: 1}) == 0
    assert one(logits, Sampling(presence_penalty=-3.0), {2: 1}) == 2
    assert one(logits, Sampling(presence_penalty=0.5), {0: 0}) == 0


def test_repetition_pushes_down_on_both_sides_of_zero() -> None:
    assert one(torch.tensor([2.0, 1.5]), Sampling(repetition_penalty=1.5), {0: 1}) == 1
    assert one(torch.tensor([-1.0, -1.2]), Sampling(repetition_penalty=1.5), {0: 1}) == 1


def test_penalties_shape_the_distribution() -> None:
    logits = logits_of(0.5, 0.25, 0.25)
    halved = replace(HOT, presence_penalty=float(torch.tensor(2.0).log()))
    assert close_to(draws(logits, halved, counts={0: 9}), [1 / 3, 1 / 3, 1 / 3])


def test_counts_beyond_the_limit_are_harmless() -> None:
    params = Sampling(presence_penalty=1.0)
    got = sample(torch.tensor([[1.0, 2.0, 9.0]]), [params], [{2: 1}], [torch.Generator()], 2)
    assert got == [1]


@pytest.mark.parametrize(
    "params", [Sampling(), HOT, replace(HOT, top_k=5), Sampling(temperature=9)]
)
def test_ids_beyond_the_tokenizer_never_come(params: Sampling) -> None:
    logits = torch.zeros(8)
    logits[5:] = 50.0
    assert set(draws(logits, params, 300, limit=5)) <= set(range(5))


@pytest.mark.parametrize(
    "params", [Sampling(), HOT, replace(HOT, top_p=0.9), replace(HOT, top_k=3)]
)
def test_what_is_not_finite_is_never_chosen(params: Sampling) -> None:
    logits = torch.tensor([NAN, 1.0, INF, -INF, 1.0, NAN])
    assert set(draws(logits, params, 100)) <= {1, 4}


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("params", [Sampling(), HOT])
def test_a_dead_row_says_so_and_spares_the_others(params: Sampling, bad: float) -> None:
    logits = torch.tensor([[0.0, 1.0], [bad, bad], [3.0, 0.0]])
    generators = [torch.Generator() for _ in range(3)]
    got = sample(logits, [Sampling(), params, Sampling()], [{}] * 3, generators, 2)
    assert got == [1, NO_TOKEN, 0]


def test_company_changes_nothing() -> None:
    """The same row, alone and among neighbours with other parameters, over many draws."""
    generator = torch.Generator().manual_seed(5)
    row = torch.randn(VOCAB, generator=generator)
    others = torch.randn(3, VOCAB, generator=generator)
    params = Sampling(temperature=0.8, top_p=0.9, top_k=6)
    company = [Sampling(), HOT, Sampling(temperature=2.0, presence_penalty=1.0)]
    alone, among = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    for turn in range(100):
        (first,) = sample(row[None], [params], [{}], [alone], VOCAB)
        place = turn % 4
        logits = torch.cat((others[:place], row[None], others[place:]))
        rows = [*company[:place], params, *company[place:]]
        generators = [torch.Generator() for _ in range(4)]
        generators[place] = among
        assert sample(logits, rows, [{1: 2}] * 4, generators, VOCAB)[place] == first


def test_logits_stay_as_they_were() -> None:
    logits = torch.randn(2, VOCAB)
    kept = logits.clone()
    params = Sampling(temperature=1.0, top_p=0.5, repetition_penalty=1.3)
    sample(logits, [params] * 2, [{1: 1}] * 2, [generator_at(0, i) for i in range(2)], VOCAB)
    assert torch.equal(logits, kept)


def test_generators_repeat_and_differ() -> None:
    first = [torch.rand((), generator=generator_at(3, i)).item() for i in range(1000)]
    again = [torch.rand((), generator=generator_at(3, i)).item() for i in range(1000)]
    other = [torch.rand((), generator=generator_at(4, i)).item() for i in range(1000)]
    assert first == again
    assert len(set(first + other)) > 1990
    both = torch.tensor([first, other])
    assert torch.corrcoef(both)[0, 1].abs() < 0.15
    assert (both.mean(1) - 0.5).abs().max() < 0.05
