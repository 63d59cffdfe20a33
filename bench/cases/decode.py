"""How fast tokens come, alone beside other engines and in company. Knows no engine's inside."""

from bench.door import EngineDoor, engine
from bench.fastest import check_llama, fastest, open_llama
from bench.peer import Peer, transformers
from bench.prompts import Prompts
from bench.registry import Bar, Bench, Case, Measured, interleaved, require_equal

PROMPT, ANSWER = 256, 128
STREAMS, STREAM_PROMPT, STREAM_ANSWER = 8, 64, 192


def decode_llama(bench: Bench) -> Measured:
    prompts = Prompts(bench.model.text)
    settings = fastest(bench, PROMPT, lambda answer: answer.decode_s)
    with engine(bench.config()) as ours, open_llama(bench, settings) as theirs:
        prompt = prompts.cold(PROMPT)
        answer = ours.ask(prompt, ANSWER, "gate")
        check_llama(bench, settings, prompts.ids(prompt), answer.tokens)
        mine, other = _rates(ours, theirs, prompts, bench.repetitions)
    return Measured(f"{mine:.0f} tok/s", f"{other:.0f} tok/s ({settings})", mine / other)


def decode_transformers(bench: Bench) -> Measured:
    prompts = Prompts(bench.model.text)
    with (
        engine(bench.config()) as ours,
        transformers(bench.model.directory, bench.threads) as theirs,
    ):
        prompt = prompts.cold(PROMPT)
        answer = ours.ask(prompt, ANSWER, "gate")
        reference = theirs.ask(prompts.ids(prompt), ANSWER)
        require_equal("against transformers", answer.tokens, reference.tokens)
        mine, other = _rates(ours, theirs, prompts, bench.repetitions)
    return Measured(f"{mine:.0f} tok/s", f"{other:.0f} tok/s", mine / other)


def _rates(ours: EngineDoor, theirs: Peer, prompts: Prompts, repetitions: int) -> list[float]:
    """Tokens a second of both, one stream, behind the first token."""

    def mine() -> float:
        return ours.ask(prompts.cold(PROMPT), ANSWER, "timed").rate

    def other() -> float:
        return theirs.ask(prompts.ids(prompts.cold(PROMPT)), ANSWER).rate

    return interleaved((mine, other), repetitions)


def decode_streams(bench: Bench) -> Measured:
    """All streams count from the first token of the first to the end of the last."""
    prompts = Prompts(bench.model.text)
    with engine(bench.config(max_lanes=STREAMS)) as door:
        several = [prompts.cold(STREAM_PROMPT) for _ in range(STREAMS)]
        together = [door.begin(prompt, STREAM_ANSWER, "gate") for prompt in several]
        door.finish(*together)
        for prompt, answer in zip(several, together, strict=True):
            alone = door.ask(prompt, STREAM_ANSWER, "gate alone")
            require_equal("a stream among others", answer.tokens, alone.tokens)

        def one() -> float:
            return door.ask(prompts.cold(STREAM_PROMPT), STREAM_ANSWER, "timed").rate

        def all_of_them() -> float:
            answers = [
                door.begin(prompts.cold(STREAM_PROMPT), STREAM_ANSWER, "timed")
                for _ in range(STREAMS)
            ]
            door.finish(*answers)
            begun, ended = min(each.first for each in answers), max(each.ended for each in answers)
            return sum(len(each.tokens) - 1 for each in answers) / (ended - begun)

        aggregate, single = interleaved((all_of_them, one), bench.repetitions)
    return Measured(
        f"{aggregate:.0f} tok/s", f"{single:.0f} tok/s for one stream", aggregate / single
    )


CASES = (
    Case(
        "decode-transformers",
        "decode, one stream: ours / transformers generate",
        Bar(3, at_least=True, unit="×"),
        decode_transformers,
    ),
    Case(
        "decode-llama",
        "decode, one stream: ours / llama.cpp",
        Bar(2, at_least=True, unit="×"),
        decode_llama,
    ),
    Case(
        "decode-8-streams",
        "decode, 8 streams together / one stream",
        Bar(4, at_least=True, unit="×"),
        decode_streams,
    ),
)
