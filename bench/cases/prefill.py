"""How fast a long prompt is computed, beside llama.cpp. Knows no engine's inside."""

from bench.door import engine
from bench.fastest import check_llama, fastest, open_llama
from bench.prompts import Prompts
from bench.registry import Bar, Bench, Case, Measured, interleaved

PROMPT, TRIAL = 8192, 2048
COMPARED = 16


def prefill_llama(bench: Bench) -> Measured:
    prompts = Prompts(bench.model.text)
    settings = fastest(bench, bench.share(TRIAL), lambda answer: answer.prompt_s)
    with engine(bench.config()) as ours, open_llama(bench, settings) as theirs:
        prompt = prompts.cold(bench.share(PROMPT))
        answer = ours.ask(prompt, COMPARED, "gate")
        check_llama(bench, settings, prompts.ids(prompt), answer.tokens)

        def time_ours() -> float:
            fresh = prompts.cold(bench.share(PROMPT))
            ours.rendering_s(fresh)  # llama.cpp is given tokens, so ours shall have made them
            return ours.ask(fresh, 1, "timed").wait

        def time_theirs() -> float:
            fresh = prompts.cold(bench.share(PROMPT))
            return theirs.ask(prompts.ids(fresh), 1).prompt_s

        mine, other = interleaved((time_ours, time_theirs), bench.repetitions)
    return Measured(f"{mine:.2f} s", f"{other:.2f} s ({settings})", other / mine)


CASES = (
    Case(
        "prefill-llama",
        "prefill 8K tokens: llama.cpp / ours",
        Bar(1.2, at_least=True, unit="×"),
        prefill_llama,
    ),
)
