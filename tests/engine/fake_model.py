"""A deterministic stand-in for the model whose next token depends on every byte of state, so that a wrong state is a wrong token.

The oracle computes the same from the tokens alone. Knows the pools' layout, nothing of who fills them.

    next = f( recurrent state: a running hash of all tokens,
              convolution state: the last three tokens,
              pages: every token with its position )
"""

from collections.abc import Sequence

import torch

from engine.models.batch import CachePools, ForwardBatch

VOCAB = 200
END = 1
MODULUS = 65_521
PAGE_TOKENS = 8
WIDTH = 8


def fake_pools(pages: int, lanes: int) -> CachePools:
    """Small pools full of poison: what was not written shows."""
    return CachePools(
        kv=torch.full((pages, 1, 2, PAGE_TOKENS, 1, 2), torch.nan),
        recurrent=torch.full((lanes, 1, 2, WIDTH, WIDTH), torch.nan),
        conv=torch.full((lanes, 1, 4, 3), torch.nan),
    )


class FakeModel:
    """`stop_every`: one in so many next tokens is END (0: never). `fail_on` raises when that token comes in, `blank_on` gives
    logits that are no numbers when it is the last.
    """

    def __init__(
        self, stop_every: int = 0, fail_on: int | None = None, blank_on: int | None = None
    ) -> None:
        self.stop_every = stop_every
        self.fail_on = fail_on
        self.blank_on = blank_on
        self.computed_tokens = 0
        self.batches: list[tuple[int, ...]] = []

    def forward(self, batch: ForwardBatch, pools: CachePools) -> torch.Tensor:
        rows = set(batch.logit_rows.tolist())
        self.computed_tokens += len(batch.token_ids)
        self.batches.append(
            tuple(b - a for a, b in zip(batch.starts, batch.starts[1:], strict=False))
        )
        logits = []
        for number, lane in enumerate(batch.lanes):
            begin, end = batch.starts[number], batch.starts[number + 1]
            tokens = batch.token_ids[begin:end].tolist()
            assert batch.positions[begin:end].tolist() == list(
                range(batch.context_lens[number], batch.context_lens[number] + len(tokens))
            )
            if self.fail_on in tokens:
                raise RuntimeError("the fake model fails on this token")
            total = batch.context_lens[number] + len(tokens)
            running, recent = self._advance(batch.context_lens[number], tokens, lane, pools)
            context = self._write_and_read(total, tokens, batch.page_tables[number], pools)
            if end - 1 in rows:
                row = _one_hot(choose(running, recent, context, self.stop_every))
                logits.append(row * torch.nan if tokens[-1] == self.blank_on else row)
        return torch.stack(logits) if logits else torch.empty(0, VOCAB)

    def recorded(self, pools: CachePools, rows: int, vocab_limit: int) -> None:
        """Every step of it is looked at."""

    def _advance(
        self, done: int, tokens: list[int], lane: int, pools: CachePools
    ) -> tuple[int, list[int]]:
        offsets = torch.arange(pools.recurrent[lane].numel()).view_as(pools.recurrent[lane])
        running, recent = 0, [0, 0, 0]
        if done:
            states = (pools.recurrent[lane] - offsets).unique()
            assert states.numel() == 1, "a state image is torn"
            running = int(states.item())
            assert (pools.conv[lane] == pools.conv[lane][:, :1]).all(), "a state image is torn"
            recent = [int(value) for value in pools.conv[lane][0, 0].tolist()]
        for token in tokens:
            running = (running * 31 + token + 7) % MODULUS
            recent = [*recent[1:], token]
        pools.recurrent[lane] = float(running) + offsets
        pools.conv[lane] = torch.tensor(recent, dtype=torch.float32)
        return running, recent

    def _write_and_read(
        self, total: int, tokens: list[int], table: torch.Tensor, pools: CachePools
    ) -> list[tuple[int, int]]:
        start = total - len(tokens)
        for at, token in enumerate(tokens, start):
            page, slot = int(table[at // PAGE_TOKENS]), at % PAGE_TOKENS
            pools.kv[page, 0, 0, slot] = float(token)
            pools.kv[page, 0, 1, slot] = float(at)
        pages = table[: -(-total // PAGE_TOKENS)]
        keys = pools.kv[pages, 0, 0, :, 0, 0].reshape(-1)[:total].tolist()
        values = pools.kv[pages, 0, 1, :, 0, 1].reshape(-1)[:total].tolist()
        return [(int(key), int(value)) for key, value in zip(keys, values, strict=True)]


def prompt(length: int, seed: int = 0) -> list[int]:
    """Tokens that look like nothing; another `seed`, other tokens."""
    return [10 + (seed * 7919 + at * 104_729 + at * at * 31) % 180 for at in range(length)]


def choose(
    running: int, recent: Sequence[int], context: Sequence[tuple[int, int]], stop_every: int
) -> int:
    mixed = running * 17 + sum(recent)
    for token, position in context:
        mixed = (mixed + token * (position % 97 + 1)) % MODULUS
    if stop_every and mixed % stop_every == 0:
        return END
    return 10 + mixed % (VOCAB - 10)


def oracle(prompt: Sequence[int], count: int, stop_every: int = 0) -> list[int]:
    """The tokens the model says after `prompt`: at most `count`, END included."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + count and (len(tokens) == len(prompt) or tokens[-1] != END):
        running = 0
        for token in tokens:
            running = (running * 31 + token + 7) % MODULUS
        recent = [0, 0, 0, *tokens][-3:]
        context = [(token, position) for position, token in enumerate(tokens)]
        tokens.append(choose(running, recent, context, stop_every))
    return tokens[len(prompt) :]


def _one_hot(token: int) -> torch.Tensor:
    row = torch.zeros(VOCAB)
    row[token] = 1.0
    return row
