"""The likeliest token: ties, rows of a wider matrix, what isn't finite."""

import pytest
import torch

from engine.ops.greedy import greedy

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("row", "token"),
    [
        ([1.0, 3.0, 2.0], 1),
        ([3.0, 3.0, 2.0], 0),
        ([-5.0, -INF, -4.0], 2),
        ([NAN, 1.0, INF], 1),
        ([-3.4028235e38, -INF, NAN], 0),
        ([NAN, INF, -INF], -1),
    ],
)
def test_one_row(row: list[float], token: int) -> None:
    assert greedy(torch.tensor([row])).tolist() == [token]


def test_rows_of_a_wider_matrix() -> None:
    wide = torch.randn(7, 300)
    wide[:, 250:] = 100.0
    before = wide.clone()
    assert torch.equal(greedy(wide[:, :250]), wide[:, :250].argmax(dim=-1))
    assert torch.equal(wide, before)
