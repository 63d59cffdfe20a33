"""Checks of time: silences, bounds, ratios to a run without company. Each judges evidence: None, or why it doesn't hold."""

from tests.cases.answer import TEXT_DELTA, Answer
from tests.cases.evidence import Evidence, NotThere, told
from tests.cases.sse import gaps

Verdict = str | None


def max_silence(seen: Evidence, step: str, seconds: float, events: str | None = None) -> Verdict:
    """Between bytes of a stream, from its sending on; with `events` between events of that type."""
    answer = seen.answer(step)
    if answer.stream is None:
        return f"{step} is no stream ({told(answer)})"
    if events is None:
        times = [0.0, *answer.stream.bytes_at]
    else:
        times = [event.at for event in answer.stream.of_type(events)]
    if len(times) < 2:
        return f"{step} has no two moments to compare ({told(answer)})"
    longest = max(gaps(times))
    return None if longest <= seconds else f"a silence of {longest:.2f} s"


def time_max(seen: Evidence, step: str, metric: str, seconds: float) -> Verdict:
    took = _metric(seen, step, metric)
    return None if took <= seconds else f"{metric} is {took:.3f} s"


def time_ratio_max(seen: Evidence, step: str, of: str, metric: str, ratio: float) -> Verdict:
    mine, other = _metric(seen, step, metric), _metric(seen, of, metric)
    return None if mine <= ratio * other else f"{metric} is {mine:.2f} s, of {of} {other:.2f} s"


def rate_min(seen: Evidence, step: str, during: str, frac_of_solo: float) -> Verdict:
    """Pieces of text a second while another step's prompt is computed, or to its own end, against those with nothing beside."""
    answer, other = seen.answer(step), seen.answer(during.removesuffix(".prefill"))
    if other.first_output_s is None:
        return f"{during} never ended ({told(other)})"
    begin, end = other.began - answer.began, other.began - answer.began + other.first_output_s
    beside = [event.at for event in answer.events if event.type == TEXT_DELTA]
    if not beside or beside[-1] <= begin:
        return f"{step} said nothing beside {during}"
    end = min(end, beside[-1])
    rate = sum(begin <= at <= end for at in beside) / (end - begin)
    alone = _rate(seen.solo.get(step), step)
    return (
        None if rate >= frac_of_solo * alone else f"{rate:.1f} pieces a second, alone {alone:.1f}"
    )


def finishes_before(seen: Evidence, step: str, other: str) -> Verdict:
    ends = []
    for each in (step, other):
        answer = seen.answer(each)
        if answer.ended_s is None or answer.status != 200:
            return f"{each} has no end ({told(answer)})"
        ends.append(answer.began + answer.ended_s)
    return None if ends[0] < ends[1] else f"{step} ended {ends[0] - ends[1]:.2f} s after {other}"


def _rate(answer: Answer | None, step: str) -> float:
    times = [event.at for event in answer.events if event.type == TEXT_DELTA] if answer else []
    if len(times) < 2:
        raise NotThere(f"{step} was not run alone")
    return (len(times) - 1) / (times[-1] - times[0])


def _metric(seen: Evidence, step: str, metric: str) -> float:
    """Seconds. Errors: NotThere."""
    if step.endswith(".solo"):
        answer = seen.solo.get(step.removesuffix(".solo"))
    else:
        answer = seen.answers.get(step)
    known = dict(seen.seconds.get(step, {}))
    if answer is not None and answer.status == 200:
        measured = {
            "first_byte": answer.first_byte_s,
            "ttft": answer.first_output_s,
            "total": answer.ended_s,
        }
        known |= {name: value for name, value in measured.items() if value is not None}
    if metric not in known:
        raise NotThere(
            f"{metric} of {step} was not measured ({told(answer) if answer else 'no answer'})"
        )
    return known[metric]


CHECKS = (
    max_silence,
    time_max,
    time_ratio_max,
    rate_min,
    finishes_before,
)
