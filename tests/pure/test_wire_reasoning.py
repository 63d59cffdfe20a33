"""Reasoning by every name clients have for it: the API's effort, and what other servers read from `chat_template_kwargs`."""

from typing import Any

import pytest

from ninfer_proxy.http.wire_chat import parse_chat
from ninfer_proxy.http.wire_common import WireDefaults
from ninfer_proxy.http.wire_reasoning import Reasoning, reasoning_of
from ninfer_proxy.http.wire_responses import parse_create
from ninfer_proxy.types import TenantKey


def told(
    effort: str | None, template: Any, default: bool | None = None
) -> tuple[Reasoning, list[str]]:
    warnings: list[str] = []
    return reasoning_of(effort, template, default, warnings), warnings


@pytest.mark.parametrize(
    ("effort", "template", "expected"),
    [
        (None, None, Reasoning(None, None, True)),
        (None, {}, Reasoning(None, None, True)),
        (None, {"preserve_thinking": False}, Reasoning(None, None, False)),
        (None, {"preserve_thinking": True}, Reasoning(None, None, True)),
        (None, {"preserve_thinking": None, "enable_thinking": None}, Reasoning(None, None, True)),
        (None, {"reasoning_effort": "low"}, Reasoning(True, "low", True)),
        (None, {"reasoning_effort": "none"}, Reasoning(False, None, True)),
        ("high", {"reasoning_effort": "low"}, Reasoning(True, "xhigh", True)),
        ("none", {"enable_thinking": True}, Reasoning(False, None, True)),
        (
            "low",
            {"enable_thinking": False, "preserve_thinking": False},
            Reasoning(False, "low", False),
        ),
    ],
)
def test_known_settings(effort: str | None, template: Any, expected: Reasoning) -> None:
    assert told(effort, template) == (expected, [])


def test_the_servers_default_is_what_nobody_spoke_of() -> None:
    assert told(None, {"preserve_thinking": False}, default=False)[0].thinking is False
    assert told(None, {"enable_thinking": True}, default=False)[0].thinking is True


def test_what_another_servers_template_knows_is_warned_about_and_never_refused() -> None:
    template = {
        "enable_thinking": "yes",
        "preserve_thinking": 0,
        "reasoning_effort": 3,
        "add_vision_id": True,
    }
    assert told(None, template) == (
        Reasoning(None, None, True),
        [
            "chat_template_kwargs.add_vision_id: unknown field, ignored",
            "chat_template_kwargs.enable_thinking: not true or false, ignored",
            "chat_template_kwargs.preserve_thinking: not true or false, ignored",
            "chat_template_kwargs.reasoning_effort: not a string, ignored",
        ],
    )


def test_an_unknown_effort_changes_nothing() -> None:
    assert told("heroic", None) == (
        Reasoning(),
        ["reasoning effort 'heroic': unknown, ignored"],
    )


def test_both_formats_carry_it() -> None:
    common: dict[str, Any] = {
        "headers": {},
        "tenant": TenantKey("t"),
        "now": 1.0,
        "defaults": WireDefaults("demo"),
    }
    fields = {"chat_template_kwargs": {"enable_thinking": False, "preserve_thinking": False}}
    asked = [{"role": "user", "content": "x"}]
    for turn in (
        parse_chat({"messages": asked, **fields}, **common).turn,
        parse_create({"input": asked, **fields}, **common),
    ):
        assert (turn.thinking, turn.preserve_thinking, turn.warnings) == (False, False, ())
