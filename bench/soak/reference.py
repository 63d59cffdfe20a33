"""What each answer must be: the same prompt to another engine process that keeps nothing, and a judge for near ties. Knows no faults."""

from collections.abc import Sequence
from pathlib import Path

import torch

from bench.door import PLAIN, Answer, EngineDoor
from engine.models.batch import ForwardBatch, allocate_pools
from engine.weights import load_model

PAGE_TOKENS = 64
TIE = 1e-3
"""Two tokens whose log-probabilities are nearer than this may change places when sums are formed in another order."""


class Reference:
    """Computes every prompt from nothing."""

    def __init__(self, directory: Path, context_tokens: int, threads: int) -> None:
        config = {
            "model_dir": str(directory),
            "context_tokens": context_tokens,
            "threads": threads,
            "max_lanes": 1,
        }
        self._door = EngineDoor(config, PLAIN)
        self._model = load_model(directory, torch.device("cpu"), torch.float32)
        self._asked = 0

    def close(self) -> None:
        self._door.close()

    def ask(self, answer: Answer) -> Answer:
        """The cold answer to the same prompt; under a tenant of its own, and nothing is saved."""
        self._asked += 1
        assert answer.generate.max_tokens is not None
        tenant = f"cold {self._asked}"
        return self._door.ask(answer.generate.prompt, answer.generate.max_tokens, tenant)

    def is_tie(self, prompt: Sequence[int], got: Sequence[int], expected: Sequence[int]) -> bool:
        """Whether the first token that differs was as good as decided by chance."""
        pairs = zip(got, expected, strict=False)
        place = next((at for at, (a, b) in enumerate(pairs) if a != b), None)
        if place is None:
            return False
        row = self._log_probabilities([*prompt, *expected[:place]])
        return abs(float(row[got[place]] - row[expected[place]])) < TIE

    def _log_probabilities(self, ids: list[int]) -> torch.Tensor:
        """[vocab] behind `ids`, computed in one pass."""
        pages = -(-len(ids) // PAGE_TOKENS)
        cpu = torch.device("cpu")
        model = self._model
        pools = allocate_pools(model.config, pages, 1, PAGE_TOKENS, model.dtype, cpu)
        batch = ForwardBatch(
            token_ids=torch.tensor(ids),
            positions=torch.arange(len(ids)),
            starts=(0, len(ids)),
            context_lens=(0,),
            lanes=(0,),
            page_tables=(torch.arange(pages),),
            logit_rows=torch.tensor([len(ids) - 1]),
        )
        return model.forward(batch, pools)[0].log_softmax(-1)
