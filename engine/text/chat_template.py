"""Runs a model's own jinja chat template, in a sandbox. Knows the template's variables, no tokens."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.text.errors import PromptError, TextFilesError


class ChatTemplate:
    """`render` gives the whole prompt as text, generation opener included.

    The environment is the one published templates are written for: trimmed blocks, `tojson` that leaves HTML and
    non-ASCII characters alone, `raise_exception`, `strftime_now` (of the clock given).
    """

    def __init__(self, source: str, now: Callable[[], datetime] = datetime.now) -> None:
        """Raises TextFilesError when `source` is no template."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: now().strftime(form)
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise TextFilesError(f"the chat template can't be read: {error}") from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        thinking: bool,
        effort: str | None,
        preserve_thinking: bool,
    ) -> str:
        """Raises PromptError with the template's own words when it refuses."""
        variables: dict[str, Any] = {
            "messages": messages,
            "tools": tools or None,
            "add_generation_prompt": True,
            "enable_thinking": thinking,
            "preserve_thinking": preserve_thinking,
        }
        if effort is not None:
            variables["reasoning_effort"] = effort
        try:
            return self._template.render(variables)
        except (TemplateError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
            raise PromptError(f"the chat template refuses this prompt: {error}") from error


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
