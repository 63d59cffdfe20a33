"""Case files as they are read, macros as case_tool.py expands them, scripts as the debug header carries them, reports as they end."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cases.case import DATA, Check, Control, Parallel, Request, read_case, read_cases
from tests.cases.controls import CONTROLS
from tests.cases.dictation import CLOSE, dictated, endless
from tests.cases.judge import absent
from tests.cases.macros import UnknownMacro, image, numbered, with_answers, with_texts, words
from tests.cases.made_up import answered, call, message
from tests.cases.proxy import Unsupported, settings_of
from tests.cases.report import Result, lines, summary
from tests.cases.sse import Stream

ROOT = Path(__file__).parents[2]


def test_all_cases_are_read_in_order() -> None:
    cases = read_cases(DATA)
    assert len(cases) == 66
    assert [int(case.id.split("-")[0]) for case in cases] == sorted(
        int(case.id.split("-")[0]) for case in cases
    )
    assert all(case.checks and case.steps for case in cases)


def test_what_no_case_can_be_played_without_is_named() -> None:
    lacking = {case.id: lack for case in read_cases(DATA) if (lack := absent(case))}
    assert lacking == {
        "92-same-text-other-image": "need vision, check cached_max with frac_of, max_frac"
    }


def test_a_case_as_values() -> None:
    case = read_case(
        {
            "id": "1-x",
            "needs": ["restart"],
            "profile": None,
            "requests": [
                {"step": "p", "stagger_ms": 50, "parallel": [{"step": "a", "path": "/x"}]},
                {"step": "c", "control": "disconnect", "of": "a"},
                {"step": "m", "path": "/y", "body": {"input": "{{words:s:2}}"}, "model_emits": {"text": "t"}},
            ],
            "expect": {
                "checks": [
                    {"check": "status", "step": "m", "one_of": [200], "level": "goal"},
                    {"check": "cached_min", "step": "m", "canon": ["tool_order"], "lint": "skip"},
                ]
            },
        }
    )  # fmt: skip
    parallel, control, request = case.steps
    assert isinstance(parallel, Parallel)
    assert isinstance(request, Request)
    assert parallel.stagger_s == 0.05
    assert control == Control("c", "disconnect", {"of": "a"})
    assert request.body == {"input": words("s", 2)}
    assert request.emits == ({"text": "t"},)
    assert case.checks == (
        Check("status", {"step": "m", "one_of": [200]}, must=False),
        Check("cached_min", {"step": "m"}),
    )
    assert case.equivalences == {"tool_order"}
    assert [each.step for each in case.requests()] == ["a", "m"]


# --- macros -------------------------------------------------------------------------------------


def test_words_are_those_of_the_case_tool() -> None:
    assert words("sys-a", 8) == "ri pare kebefe kosi telite zize zo gi"
    assert words("sys-a", 700).startswith(words("sys-a", 8) + " ")
    assert with_texts({"a": ["say {{words:sys-a:1}}!"]}) == {"a": ["say ri!"]}


def test_images_are_png_of_their_colour() -> None:
    assert image("red", 2, 1) == (
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAIAAAB7QOjdAAAADUlEQVR42mO4IycHRAAJKwIxc8UghAAAAABJRU5ErkJggg=="
    )
    assert len({image(name, 4, 4) for name in ("red", "stripes", "noise", "other")}) == 4


def test_a_template_is_numbered_before_its_words_are_made() -> None:
    assert numbered({"input": "{{words:hb{{n}}:3}}"}, 7) == {"input": words("hb7", 3)}


def test_parts_of_answers_take_their_places() -> None:
    said = answered(message("Rix"), call("run", "{}"), id="resp_9")
    body = {
        "model": "{{model}}",
        "previous_response_id": "{{id:m1}}",
        "input": [{"$items": "m1"}, {"call_id": "{{call:m1:0}}", "output": "{{text:m1}}"}],
    }
    assert with_answers(body, {"m1": said}, "demo") == {
        "model": "demo",
        "previous_response_id": "resp_9",
        "input": [*said.items, {"call_id": "call_1", "output": "Rix"}],
    }


def test_a_macro_without_a_value_is_named() -> None:
    with pytest.raises(UnknownMacro, match="output:m1"):
        with_answers({"input": "{{output:m1}}"}, {}, "demo")


# --- scripts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("emits", "pieces"),
    [
        (["<think>\n", "so", "\n</think>\n\n", "ok"], ["", "so", "\n</think>\n\n", "ok"]),
        (["<think>\nso"], ["so"]),
        (["ok"], [CLOSE, "ok"]),
        (["</think>\n\n", "ok"], ["</think>\n\n", "ok"]),
        ([{"hex": "f0"}, {"fault": "x"}], [CLOSE, {"hex": "f0"}, {"fault": "x"}]),
        ([{"text": "é!", "split": "bytes"}], [CLOSE, {"hex": "c3"}, {"hex": "a9"}, {"hex": "21"}]),
        ([{"text": "ab", "split": "characters"}], [CLOSE, "a", "b"]),
    ],
)
def test_a_script_goes_on_behind_the_opener(emits: list[Any], pieces: list[Any]) -> None:
    assert dictated(emits, {}) == pieces


def test_a_request_without_thinking_is_dictated_as_it_stands() -> None:
    off = {"chat_template_kwargs": {"enable_thinking": False}}
    assert dictated(["<think>\n", "so"], off) == ["<think>\n", "so"]
    assert dictated(["ok"], {"reasoning": {"effort": "none"}}) == ["ok"]


def test_an_unknown_split_is_named() -> None:
    with pytest.raises(Unsupported, match="syllables"):
        dictated([{"text": "a", "split": "syllables"}], {})


def test_an_endless_answer_has_words_enough() -> None:
    close, said = endless("s", 100, {})
    assert (close, len(said.split())) == (CLOSE, 100)


# --- the rest -----------------------------------------------------------------------------------


def test_profiles_become_settings() -> None:
    assert settings_of({"slots": 2, "tenant_isolation": True}) == (
        ["--slots=2"],
        {"NINFER_PROXY_ENGINE_MAX_LANES": "2"},
    )
    with pytest.raises(Unsupported, match="colour"):
        settings_of({"colour": "red"})


def test_controls_are_called_as_cases_call_them() -> None:
    assert all(name == function.__name__ for name, function in CONTROLS.items())


def test_a_stream_in_pieces() -> None:
    stream = Stream()
    for at, chunk in enumerate(
        (b'event: a\ndata: {"ty', b'pe": "b"}\n', b"\n: still here\n\ndata: [DONE]\n\n")
    ):
        stream.feed(chunk, float(at))
    stream.end()
    assert [(event.type, event.name, event.at) for event in stream.events] == [
        ("b", "a", 2.0),
        ("", "", 2.0),
    ]
    assert (stream.comments_at, stream.bytes_at, stream.faults) == ([2.0], [0.0, 1.0, 2.0], [])


@pytest.mark.parametrize("wrong", [b"rubbish\n\n", b"data: {\n\n", b"data: {}", b"data: \xff\n\n"])
def test_a_breach_of_the_stream_format_is_noted(wrong: bytes) -> None:
    stream = Stream()
    stream.feed(wrong, 0.0)
    stream.end()
    assert len(stream.faults) == 1


def test_reports() -> None:
    status = Check("status", {"step": "m"})
    results = [
        Result("1-a", 1.0),
        Result("2-b", 1.0, missed=((status, "why not"),)),
        Result("3-c", 1.0, failed=((status, "why"),)),
        Result("4-d", skipped="need vision"),
        Result("5-e", 1.0, broken="it fell over"),
    ]
    assert summary(results) == "2 passed, 2 failed, 1 skipped"
    told = ["\n".join(lines(result)) for result in results]
    assert "goal not met: status(step='m'): why not" in told[1]
    assert "status(step='m'): why" in told[2]
    assert "need vision" in told[3]
    assert "it fell over" in told[4]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.cases", "--cases", str(folder), *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
    )


def test_the_last_line_counts_and_a_skip_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "92.json").write_text((DATA / "92-same-text-other-image.json").read_text())
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "need vision" in done.stdout
    assert done.stdout.splitlines()[-1] == "0 passed, 0 failed, 1 skipped"


def test_a_folder_without_cases_is_a_failure(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 1
    assert "no case files" in done.stderr
