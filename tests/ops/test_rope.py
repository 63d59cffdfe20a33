"""Partial rotary embedding: against complex rotation, and the share of each axis in interleaved positions."""

import pytest
import torch

from engine.ops.rope import apply_rope, rope_frequencies, rope_table

THETA = 1e4
SECTION = (11, 11, 10)


def frequencies(rotary: int) -> torch.Tensor:
    return rope_frequencies(THETA, rotary, torch.device("cpu"))


@pytest.mark.parametrize(("dim", "rotary"), [(64, 64), (64, 16), (256, 64), (6, 2)])
def test_rotation(dim: int, rotary: int) -> None:
    positions = torch.tensor([0, 1, 63, 64, 20_000])
    x = torch.randn(5, 3, dim)
    cos, sin = rope_table(positions, frequencies(rotary), SECTION)
    got = apply_rope(x, cos, sin)

    half = rotary // 2
    frequency = THETA ** (-torch.arange(half).double() * 2 / rotary)
    turn = torch.polar(torch.ones(5, half).double(), positions[:, None] * frequency)
    pairs = torch.complex(x[..., :half].double(), x[..., half:rotary].double()) * turn[:, None]
    # an angle of some thousands keeps three digits after the point in fp32, which is what the reference computes in
    torch.testing.assert_close(got[..., :half], pairs.real.float(), atol=5e-3, rtol=0)
    torch.testing.assert_close(got[..., half:rotary], pairs.imag.float(), atol=5e-3, rtol=0)
    torch.testing.assert_close(got[:4, :, :half], pairs.real.float()[:4], atol=2e-5, rtol=0)
    assert torch.equal(got[..., rotary:], x[..., rotary:])


def test_dot_products_depend_on_distance_only() -> None:
    q, k = torch.randn(2, 1, 1, 32)
    near, far = (
        [apply_rope(x, *rope_table(torch.tensor([p]), frequencies(32), SECTION)) for x, p in pairs]
        for pairs in (((q, 7), (k, 3)), ((q, 107), (k, 103)))
    )
    torch.testing.assert_close((near[0] * near[1]).sum(), (far[0] * far[1]).sum())


def test_axes_share_the_frequencies() -> None:
    time, height, width = (torch.full((1,), p) for p in (5, 11, 23))
    cos, _ = rope_table(torch.stack((time, height, width)), frequencies(64), SECTION)
    alone = [rope_table(p, frequencies(64), SECTION)[0] for p in (time, height, width)]
    owners = [1 if i % 3 == 1 and i < 33 else 2 if i % 3 == 2 and i < 30 else 0 for i in range(32)]
    assert [owners.count(axis) for axis in range(3)] == list(SECTION)
    expected = torch.stack([alone[owner][0, i] for i, owner in enumerate(owners)])
    torch.testing.assert_close(cos[0], expected, atol=2e-7, rtol=0)


def test_equal_axes_are_plain_positions() -> None:
    positions = torch.arange(40)
    plain = rope_table(positions, frequencies(64), SECTION)
    mixed = rope_table(positions.expand(3, -1), frequencies(64), SECTION)
    torch.testing.assert_close(mixed, plain, atol=2e-7, rtol=0)
