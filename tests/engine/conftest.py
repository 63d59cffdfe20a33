"""One thread for torch: the models here are tiny, and threads that wait for each other cost more than they do."""

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)
