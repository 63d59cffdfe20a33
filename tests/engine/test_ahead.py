"""Steps that are begun before the last one's outcome is told: the same tokens and the same accounts, whoever comes or leaves meanwhile."""

import dataclasses
from collections.abc import Sequence as Ordered
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.api import Failed, FinishReason, RequestId
from engine.models.batch import CachePools, ForwardBatch, allocate_pools
from engine.models.qwen3_5 import Qwen35Model
from engine.ops import native
from engine.weights import load_model
from tests.engine.rig import FakeOutput, Rig
from tests.engine.tiny_weights import write_tiny_weights

pytestmark = pytest.mark.skipif(native.library() is None, reason="nothing is recorded")

CPU = torch.device("cpu")
PAGE_TOKENS, LANES = 16, 4
NEVER = 1 << 20
PROMPTS = [[(7 * at + 31 * number) % 300 for at in range(20 + number)] for number in range(6)]


class Plain:
    """The model, never recorded, so that nothing is begun ahead."""

    def __init__(self, model: Qwen35Model) -> None:
        self._model = model

    def forward(self, batch: ForwardBatch, pools: CachePools) -> torch.Tensor:
        return self._model.forward(batch, pools)

    def recorded(self, pools: CachePools, rows: int, vocab_limit: int) -> None:
        """None is made."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Qwen35Model:
    directory: Path = tmp_path_factory.mktemp("weights")
    write_tiny_weights(directory)
    return load_model(directory, CPU, torch.float32)


def rig_on(model: Qwen35Model | Plain, config: Any, stop: int = NEVER) -> Rig:
    pools = allocate_pools(config, 200, LANES, PAGE_TOKENS, torch.float32, CPU)
    for pool in (pools.kv, pools.recurrent, pools.conv):
        pool.fill_(torch.nan)
    return Rig(context=300, real=(model, pools), stop_tokens=frozenset({stop}))


def answers(rig: Rig, prompts: Ordered[Ordered[int]], tokens: int) -> list[list[int]]:
    requests = [rig.submit(p, f"c{n}", max_tokens=tokens + n) for n, p in enumerate(prompts)]
    rig.run()
    return [rig.output(each) for each in requests]


def oracle(model: Qwen35Model, prompt: Ordered[int], tokens: int) -> list[int]:
    (found,) = answers(rig_on(Plain(model), model.config), [prompt], tokens)
    return found


def generating(rig: Rig, prompts: Ordered[Ordered[int]], **options: Any) -> list[RequestId]:
    """Requests of which all have said something, with their next step begun."""
    options = {"max_tokens": 60, **options}
    requests = [rig.submit(p, f"c{n}", **options) for n, p in enumerate(prompts)]
    while not all(rig.output(each) for each in requests):
        rig.step()
    rig.step()
    assert len(rig.loop.ahead.work) == len(requests)
    return requests


def verify_nothing_is_held(rig: Rig) -> None:
    assert rig.loop.fault is None
    assert rig.loop.ahead.work == []
    assert rig.cache.lanes.free == LANES
    assert rig.cache.pages.in_lanes == 0


def test_the_same_tokens_as_without(model: Qwen35Model) -> None:
    """More requests than lanes, ending one by one, over the ends of pages."""
    rig = rig_on(model, model.config)
    plain = answers(rig_on(Plain(model), model.config), PROMPTS, 40)
    assert answers(rig, PROMPTS, 40) == plain
    assert [len(each) for each in plain] == [40, 41, 42, 43, 44, 45]
    verify_nothing_is_held(rig)


def test_a_token_that_ends_the_answer_ends_it_at_once(model: Qwen35Model) -> None:
    said = oracle(model, PROMPTS[0], 40)
    stop = next(token for token in said[5:] if said.index(token) >= 5)
    rig = rig_on(model, model.config, stop)
    (request, other) = generating(rig, PROMPTS[:1] + PROMPTS[1:2])
    rig.run()
    assert rig.finished(request).reason is FinishReason.STOP
    assert rig.finished(request).output_tokens == said.index(stop) + 1
    assert rig.output(request)[:-1] == said[: said.index(stop)]
    assert rig.output(other)
    verify_nothing_is_held(rig)


def test_the_tip_that_is_left_is_exact(model: Qwen35Model) -> None:
    """What was computed ahead is no part of the state that is kept: the next turn says what it says from nothing."""
    rig = rig_on(model, model.config)
    first = rig.ask(PROMPTS[0], "a", max_tokens=17)
    longer = [*rig.line(PROMPTS[0], first), *PROMPTS[1]]
    second = rig.ask(longer, "a", max_tokens=20)
    assert rig.started(second).reused_tokens > len(PROMPTS[0])
    assert rig.output(second) == oracle(model, longer, 20)


def test_one_that_is_called_off_leaves_with_the_step_that_was_begun(model: Qwen35Model) -> None:
    rig = rig_on(model, model.config)
    gone, stays = generating(rig, PROMPTS[:2])
    said = len(rig.output(gone))
    rig.cancel(gone)
    assert gone not in rig.loop.turns
    assert rig.finished(gone).output_tokens == said + 1
    late = rig.submit(PROMPTS[2], "late", max_tokens=30)
    rig.run()
    assert rig.output(stays) == oracle(model, PROMPTS[1], 60)
    assert rig.output(late) == oracle(model, PROMPTS[2], 30)
    verify_nothing_is_held(rig)


def test_one_called_off_with_its_first_token_keeps_its_prompt(model: Qwen35Model) -> None:
    """Its state is a token further by then; nobody may take that for the prompt's."""
    rig = rig_on(model, model.config)
    request = rig.submit(PROMPTS[0], "a", max_tokens=60, save_tip=False)
    rig.step()
    assert rig.loop.ahead.work
    rig.cancel(request)
    again = rig.ask([*PROMPTS[0], 5, 6, 7], "b", max_tokens=20)
    assert rig.output(again) == oracle(model, [*PROMPTS[0], 5, 6, 7], 20)
    verify_nothing_is_held(rig)


def test_whoever_comes_is_served_in_the_next_step(model: Qwen35Model) -> None:
    rig = rig_on(model, model.config)
    first, second = generating(rig, PROMPTS[:2])
    late = rig.submit(PROMPTS[2], "late", max_tokens=30)
    assert rig.loop.ahead.work == []
    rig.step()
    assert rig.started(late)
    rig.run()
    for request, prompt in ((first, PROMPTS[0]), (second, PROMPTS[1])):
        assert rig.output(request) == oracle(model, prompt, 60)
    assert rig.output(late) == oracle(model, PROMPTS[2], 30)
    verify_nothing_is_held(rig)


def test_a_fault_in_the_text_of_one_ends_that_one(model: Qwen35Model) -> None:
    """Found while the next step runs, which it has a part in."""
    said = oracle(model, PROMPTS[0], 40)
    rig = rig_on(model, model.config)
    broken = rig.submit(PROMPTS[0], "a", max_tokens=60, output=FakeOutput(fault=said[6]))
    other = rig.submit(PROMPTS[1], "b", max_tokens=60)
    rig.run()
    assert isinstance(rig.end(broken), Failed)
    assert rig.output(broken) == said[: said.index(said[6])]
    assert rig.output(other) == oracle(model, PROMPTS[1], 60)
    verify_nothing_is_held(rig)


def test_a_stop_string_is_waited_for(model: Qwen35Model) -> None:
    """Whether it ends there, only the text can say: no step is begun before it is known."""
    rig = rig_on(model, model.config)
    request = rig.submit(PROMPTS[0], "a", max_tokens=60)
    turn = rig.loop.turns[request]
    stopping = dataclasses.replace(turn.prompted.generate, stop=("end",))
    turn.prompted = dataclasses.replace(turn.prompted, generate=stopping)
    while rig.loop.turns:
        rig.step()
        assert rig.loop.ahead.work == []
    assert rig.output(request) == oracle(model, PROMPTS[0], 60)


def test_drawn_tokens_are_the_same(model: Qwen35Model) -> None:
    """Those are chosen from the logits of the step before the next one overwrites them."""
    outputs = []
    for chosen in (model, Plain(model)):
        rig = rig_on(chosen, model.config)
        requests = [rig.submit(p, f"c{n}", max_tokens=30) for n, p in enumerate(PROMPTS[:3])]
        for request in requests[:2]:
            sequence = rig.loop.turns[request].sequence
            sequence.sampling = dataclasses.replace(sequence.sampling, temperature=1.0)
        rig.run()
        outputs.append([rig.output(each) for each in requests])
    assert outputs[0] == outputs[1]
