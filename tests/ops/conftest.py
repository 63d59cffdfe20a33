"""For every operation test: one thread, since operands are small and threads of a busy machine wait for each other, a seed, and both kinds
of CPU kernels.
"""

from collections.abc import Iterator

import pytest
import torch

from engine.ops import native


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=["C", "torch"], autouse=True)
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which kernels serve the test; C's must be there where tests run."""
    kind: str = request.param
    if kind == "torch":
        monkeypatch.setattr(native, "library", lambda: None)
    else:
        assert native.library() is not None, "no C compiler: the CPU kernels can't be tested"
    return kind
