"""The convolution: the CPU form against the naive one, both against torch's conv1d, and what is and isn't read."""

import pytest
import torch
import torch.nn.functional as F

from engine.ops.causal_conv1d import causal_conv1d, naive
from tests.ops.batches import LENGTHS, NAN, poisoned_but, ragged, scattered

CHANNELS = 11


@pytest.mark.parametrize("kernel", [2, 4])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_against_naive(lengths: tuple[int, ...], kernel: int) -> None:
    lanes = scattered(len(lengths))
    rows = ragged(lengths, lanes, (False,) * len(lengths))
    x = torch.randn(sum(lengths), 2 * CHANNELS)[:, :CHANNELS]
    weight = torch.randn(CHANNELS, kernel)
    states = poisoned_but(torch.randn(8, CHANNELS, kernel - 1), lanes)
    expected_states, got_states = states.clone(), states.clone()
    expected = naive.causal_conv1d(x, weight, expected_states, rows)
    got = causal_conv1d(x, weight, got_states, rows)
    torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(got_states, expected_states, atol=0, rtol=0, equal_nan=True)
    others = [lane for lane in range(8) if lane not in lanes]
    assert got_states[others].isnan().all()


@pytest.mark.parametrize("length", [1, 2, 3, 4, 65])
def test_fresh_run_is_a_left_padded_convolution(length: int) -> None:
    x, weight = torch.randn(length, CHANNELS), torch.randn(CHANNELS, 4)
    padded = F.pad(x.T, (3, 0))
    expected = F.silu(F.conv1d(padded[None], weight[:, None], groups=CHANNELS)[0].T)
    for implementation in (causal_conv1d, naive.causal_conv1d):
        states = torch.full((3, CHANNELS, 3), NAN)
        got = implementation(x, weight, states, ragged((length,), (1,), (True,)))
        torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-5)
        assert torch.equal(states[1], padded[:, -3:])


@pytest.mark.parametrize("cut", [1, 2, 3, 40])
def test_state_carries_over_cuts(cut: int) -> None:
    x, weight = torch.randn(70, CHANNELS), torch.randn(CHANNELS, 4)
    whole_state, state = torch.full((2, 1, CHANNELS, 3), NAN)
    whole = causal_conv1d(x, weight, whole_state, ragged((70,), (0,), (True,)))
    parts = [
        causal_conv1d(part, weight, state, ragged((len(part),), (0,), (i == 0,)))
        for i, part in enumerate(x.split(cut))
    ]
    torch.testing.assert_close(torch.cat(parts), whole, atol=1e-6, rtol=1e-5)
    assert torch.equal(state, whole_state)


def test_bf16_sums_in_fp32() -> None:
    x, weight = torch.randn(67, CHANNELS).bfloat16(), torch.randn(CHANNELS, 4).bfloat16()
    rows = ragged((65, 1, 1), (0, 1, 2), (True, False, False))
    states = torch.randn(3, CHANNELS, 3).bfloat16()
    exact = naive.causal_conv1d(x.float(), weight.float(), states.float(), rows)
    for implementation in (causal_conv1d, naive.causal_conv1d):
        got = implementation(x, weight, states.clone(), rows)
        assert got.dtype == torch.bfloat16
        torch.testing.assert_close(got, exact.bfloat16(), atol=1e-6, rtol=2**-7)
