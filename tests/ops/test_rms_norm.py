"""RMS norms against the contract's formula in float64, and the CPU form against it on odd shapes and strides."""

import pytest
import torch

from engine.ops.rms_norm import gated_rms_norm, naive, rms_norm

EPS = 1e-6
SHAPES = [(1, 1), (3, 7), (5, 2, 64), (130, 3, 24)]


@pytest.mark.parametrize("shape", SHAPES)
def test_rms_norm(shape: tuple[int, ...]) -> None:
    x, w = torch.randn(shape) * 3, torch.randn(shape[-1])
    exact = x.double() / (x.double().square().mean(-1, keepdim=True) + EPS).sqrt() * (1 + w)
    for implementation in (rms_norm, naive.rms_norm):
        torch.testing.assert_close(implementation(x, w, EPS), exact.float(), atol=2e-6, rtol=2e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_gated_rms_norm(shape: tuple[int, ...]) -> None:
    wide = torch.randn(*shape[:-1], 2 * shape[-1])
    x, gate = wide.chunk(2, dim=-1)  # rows of a wider matrix
    w = torch.randn(shape[-1])
    d, z = x.double(), gate.double()
    exact = d / (d.square().mean(-1, keepdim=True) + EPS).sqrt() * w * z * torch.sigmoid(z)
    kept = wide.clone()
    for implementation in (gated_rms_norm, naive.gated_rms_norm):
        got = implementation(x, gate, w, EPS)
        torch.testing.assert_close(got, exact.float(), atol=2e-6, rtol=2e-6)
    assert torch.equal(wide, kept)


def test_zeros_stay_zeros() -> None:
    assert not rms_norm(torch.zeros(2, 8), torch.ones(8), EPS).any()


def test_bf16_is_normalised_in_fp32() -> None:
    x, w = torch.randn(9, 48).bfloat16(), torch.randn(48).bfloat16()
    exact = naive.rms_norm(x.float(), w.float(), EPS)
    got = rms_norm(x, w, EPS)
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got, exact.bfloat16(), atol=0, rtol=2**-7)
