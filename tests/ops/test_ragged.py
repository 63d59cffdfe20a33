"""Which rows go together as steps, and which run by themselves."""

import torch

from tests.ops.batches import ragged


def test_steps_in_a_row_are_a_slice() -> None:
    rows = ragged((1, 1, 1), (3, 4, 5), (False, False, False))
    assert rows.step_lanes == slice(3, 6)
    assert rows.step_rows is None
    assert rows.spans == ()


def test_scattered_steps_are_an_index() -> None:
    rows = ragged((1, 4, 1), (6, 0, 2), (False, False, False))
    assert isinstance(rows.step_lanes, torch.Tensor)
    assert rows.step_lanes.tolist() == [6, 2]
    assert rows.step_rows is not None
    assert rows.step_rows.tolist() == [0, 5]
    assert [(span.begin, span.end, span.lane) for span in rows.spans] == [(1, 5, 0)]


def test_a_fresh_single_row_is_no_step() -> None:
    rows = ragged((1, 1), (0, 1), (True, False))
    assert rows.has_steps
    assert [span.fresh for span in rows.spans] == [True]


def test_no_steps() -> None:
    rows = ragged((3, 2), (0, 1), (True, False))
    assert not rows.has_steps
    assert len(rows.spans) == 2
