"""Products with packed matrices against plain ones: any sizes, exact packing, rows that lie apart."""

import pytest
import torch

from engine.ops.linear import Packed, linear, pack
from engine.ops.linear.native import unpack

SIZES = [(128, 456), (1, 1), (5, 33), (31, 16), (64, 65), (257, 100)]


def matrix(depth: int, columns: int, is_half: bool) -> torch.Tensor:
    values = torch.randn(depth, columns)
    return values.bfloat16().float() if is_half else values


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 31, 32, 33, 100])
@pytest.mark.parametrize("is_half", [True, False])
@pytest.mark.parametrize(("depth", "columns"), SIZES)
def test_against_double(depth: int, columns: int, is_half: bool, rows: int) -> None:
    weight = matrix(depth, columns, is_half)
    x = torch.randn(rows, depth + 7)[:, 3 : 3 + depth]
    residual = torch.randn(rows, columns)
    product = x.double() @ weight.double()
    packed = pack(weight)
    torch.testing.assert_close(linear(x, packed), product.float(), atol=5e-5, rtol=1e-5)
    expected = (residual.double() + product).float()
    kept = residual.clone()
    torch.testing.assert_close(linear(x, packed, residual), expected, atol=5e-5, rtol=1e-5)
    assert torch.equal(residual, kept)


@pytest.mark.parametrize("is_half", [True, False])
@pytest.mark.parametrize(("depth", "columns"), SIZES)
def test_packing_keeps_every_value(depth: int, columns: int, is_half: bool, kernels: str) -> None:
    weight = matrix(depth, columns, is_half)
    weight[0, 0] = 2.0 if is_half else 1e-39  # a number too small to be normal
    packed = pack(weight)
    if kernels == "torch":
        assert packed is weight
    else:
        assert isinstance(packed, Packed)
        assert packed.is_half == is_half
        assert torch.equal(unpack(packed), weight)


@pytest.mark.parametrize("kernels", ["C"], indirect=True)
def test_a_row_has_the_same_sums_in_any_company() -> None:
    packed, x = pack(matrix(200, 70, True)), torch.randn(32, 200)
    many = [linear(x[:rows], packed) for rows in (3, 5, 8, 13, 32)]
    assert all(torch.equal(each, many[-1][: len(each)]) for each in many)
