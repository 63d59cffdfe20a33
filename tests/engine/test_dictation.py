"""A dictated request says what it is told, on the engine's ordinary path; a dictated fault ends that request alone."""

from engine.api import Failed, FinishReason
from tests.engine.fake_model import END, oracle, prompt
from tests.engine.rig import Rig


def test_dictated_tokens_take_the_place_of_sampled_ones() -> None:
    rig = Rig()
    request = rig.ask(prompt(20), dictated=[50, 51, 52, END], max_tokens=10)
    assert rig.output(request) == [50, 51, 52]
    assert rig.finished(request).reason is FinishReason.STOP


def test_what_follows_a_dictation_is_the_models_own() -> None:
    rig = Rig()
    tokens = prompt(20)
    request = rig.ask(tokens, dictated=[50, 51], max_tokens=4)
    assert rig.output(request) == [50, 51, *oracle([*tokens, 50, 51], 2)]


def test_the_limit_cuts_a_dictation() -> None:
    rig = Rig()
    request = rig.ask(prompt(20), dictated=[50, 51, 52, 53], max_tokens=3)
    assert rig.output(request) == [50, 51, 52]
    assert rig.finished(request).reason is FinishReason.LENGTH


def test_a_dictated_turn_is_resumed_from_its_tip() -> None:
    rig = Rig()
    tokens = prompt(20)
    first = rig.ask(tokens, dictated=[50, 51, END])
    line = rig.line(tokens, first)
    second = rig.ask([*line, *prompt(5, seed=3)])
    assert rig.started(second).reused_tokens == len(line)


def test_a_dictated_fault_ends_its_request_alone() -> None:
    rig = Rig()
    other = rig.submit(prompt(30, seed=1), "b", max_tokens=6)
    faulty = rig.submit(prompt(20), dictated=[50, None], max_tokens=6)
    rig.run()
    assert isinstance(rig.end(faulty), Failed)
    assert rig.output(faulty) == [50]
    assert rig.output(other) == oracle(prompt(30, seed=1), 6)
