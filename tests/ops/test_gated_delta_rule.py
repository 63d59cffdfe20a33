"""The gated delta rule: chunks and steps against the token-by-token form, carried states, extreme gates, poisoned lanes."""

from typing import NamedTuple

import pytest
import torch

from engine.ops.gated_delta_rule import gated_delta_rule, naive
from tests.ops.batches import LENGTHS, NAN, poisoned_but, ragged, scattered

KEY_DIM, VALUE_DIM = 16, 24


class Inputs(NamedTuple):
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    a: torch.Tensor
    b: torch.Tensor
    a_log: torch.Tensor
    dt_bias: torch.Tensor

    def rows(self, begin: int, end: int) -> "Inputs":
        return Inputs(*(x[begin:end] for x in self[:5]), self.a_log, self.dt_bias)


def random_inputs(length: int, key_heads: int, value_heads: int) -> Inputs:
    """Decays from almost none to almost all in one token."""
    return Inputs(
        q=torch.randn(length, key_heads, KEY_DIM),
        k=torch.randn(length, key_heads, KEY_DIM),
        v=torch.randn(length, value_heads, VALUE_DIM),
        a=torch.randn(length, value_heads),
        b=torch.randn(length, value_heads),
        a_log=torch.linspace(-4, 2, value_heads),
        dt_bias=torch.randn(value_heads) - 2,
    )


@pytest.mark.parametrize(("key_heads", "value_heads"), [(2, 2), (1, 3), (2, 6)])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_against_naive(lengths: tuple[int, ...], key_heads: int, value_heads: int) -> None:
    lanes = scattered(len(lengths))
    fresh = tuple(i % 3 == 2 for i in range(len(lengths)))
    rows = ragged(lengths, lanes, fresh)
    inputs = random_inputs(sum(lengths), key_heads, value_heads)
    kept = [x.clone() for x in inputs]
    read = tuple(lane for lane, is_fresh in zip(lanes, fresh, strict=True) if not is_fresh)
    states = poisoned_but(torch.randn(8, value_heads, KEY_DIM, VALUE_DIM), read)
    expected_states, got_states = states.clone(), states.clone()
    expected = naive.gated_delta_rule(*inputs, expected_states, rows)
    got = gated_delta_rule(*inputs, got_states, rows)
    torch.testing.assert_close(got, expected, atol=3e-6, rtol=1e-5)
    torch.testing.assert_close(got_states, expected_states, atol=3e-6, rtol=1e-5, equal_nan=True)
    assert not got_states[list(lanes)].isnan().any()
    assert got_states[[lane for lane in range(8) if lane not in lanes]].isnan().all()
    assert all(torch.equal(x, y) for x, y in zip(inputs, kept, strict=True))


def test_naive_is_the_contract() -> None:
    """One head, three tokens, written out in float64 as matrices."""
    inputs = random_inputs(3, 1, 1)
    start = torch.randn(1, 1, KEY_DIM, VALUE_DIM)
    state = start[0, 0].double()
    states = start.clone()
    got = naive.gated_delta_rule(*inputs, states, ragged((3,), (0,), (False,)))
    for t in range(3):
        q, k = (x[t, 0].double() / (x[t, 0].double().norm() ** 2 + 1e-6).sqrt() for x in inputs[:2])
        gain = torch.log1p(torch.exp((inputs.a[t] + inputs.dt_bias).double()))
        decay = torch.exp(-inputs.a_log.double().exp() * gain)
        beta = 1 / (1 + torch.exp(-inputs.b[t].double()))
        forget = torch.eye(KEY_DIM).double() - beta * torch.outer(k, k)
        state = forget @ (decay * state) + beta * torch.outer(k, inputs.v[t, 0].double())
        out = state.T @ q / KEY_DIM**0.5
        torch.testing.assert_close(got[t, 0], out.float(), atol=2e-6, rtol=1e-5)
    torch.testing.assert_close(states[0, 0], state.float(), atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("cut", [1, 7, 63, 64, 65, 100])
def test_state_carries_over_cuts(cut: int) -> None:
    inputs = random_inputs(130, 2, 4)
    whole_state, state = torch.full((2, 3, 4, KEY_DIM, VALUE_DIM), NAN)
    whole = gated_delta_rule(*inputs, whole_state, ragged((130,), (1,), (True,)))
    parts = []
    for begin in range(0, 130, cut):
        part = inputs.rows(begin, min(130, begin + cut))
        rows = ragged((len(part.q),), (1,), (begin == 0,))
        parts.append(gated_delta_rule(*part, state, rows))
    torch.testing.assert_close(torch.cat(parts), whole, atol=3e-6, rtol=1e-5)
    torch.testing.assert_close(state, whole_state, atol=3e-6, rtol=1e-5, equal_nan=True)


@pytest.mark.parametrize("level", [-40.0, 40.0])
def test_extreme_gates_stay_finite(level: float) -> None:
    """Decays of e^-800 and of exactly 1, updates of nothing and of everything."""
    inputs = random_inputs(130, 1, 2)
    inputs = inputs._replace(
        a=torch.full_like(inputs.a, level),
        b=torch.full_like(inputs.b, level),
        a_log=torch.full((2,), 3.0),
    )
    expected_states, got_states = torch.zeros(2, 1, 2, KEY_DIM, VALUE_DIM)
    rows = ragged((130,), (0,), (True,))
    expected = naive.gated_delta_rule(*inputs, expected_states, rows)
    got = gated_delta_rule(*inputs, got_states, rows)
    assert got.isfinite().all()
    torch.testing.assert_close(got, expected, atol=3e-6, rtol=1e-5)
    torch.testing.assert_close(got_states, expected_states, atol=3e-6, rtol=1e-5)


def test_a_key_written_again_replaces_its_value() -> None:
    """What the delta rule is for: without decay and with beta near 1, the last value of a key is read back."""
    key = torch.randn(1, 1, KEY_DIM).expand(2, 1, KEY_DIM)
    v = torch.randn(2, 1, VALUE_DIM)
    states = torch.zeros(1, 1, KEY_DIM, VALUE_DIM)
    never, always = torch.full((2, 1), -40.0), torch.full((2, 1), 40.0)
    out = gated_delta_rule(
        key,
        key,
        v,
        never,
        always,
        torch.zeros(1),
        torch.zeros(1),
        states,
        ragged((2,), (0,), (True,)),
    )
    torch.testing.assert_close(out[1] * KEY_DIM**0.5, v[1], atol=1e-5, rtol=1e-5)


def test_bf16_inputs_are_computed_in_fp32() -> None:
    inputs = random_inputs(67, 1, 2)
    half = Inputs(*(x.bfloat16() for x in inputs[:5]), inputs.a_log, inputs.dt_bias)
    rows = ragged((65, 1, 1), (0, 1, 2), (True, False, False))
    states = torch.randn(3, 2, KEY_DIM, VALUE_DIM)
    full = Inputs(*(x.float() for x in half[:5]), inputs.a_log, inputs.dt_bias)
    exact = naive.gated_delta_rule(*full, states.clone(), rows)
    for implementation in (gated_delta_rule, naive.gated_delta_rule):
        got = implementation(*half, states.clone(), rows)
        assert got.dtype == torch.bfloat16
        torch.testing.assert_close(got, exact.bfloat16(), atol=1e-5, rtol=2**-7)
