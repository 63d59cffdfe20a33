"""What a request says about reasoning, by any of the names clients have for it. Pure; knows no template and no endpoint."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ninfer_proxy.http.wire_common import brief, unknown_fields

EFFORTS: Mapping[str, str] = {
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "xhigh",
    "xhigh": "xhigh",
    "max": "xhigh",
}
"""What clients say → what the chat template knows. `none` is not here: it switches thinking off."""

_TEMPLATE_FIELDS: Mapping[str, tuple[type, str]] = {
    "enable_thinking": (bool, "true or false"),
    "preserve_thinking": (bool, "true or false"),
    "reasoning_effort": (str, "a string"),
}


@dataclass(frozen=True, slots=True)
class Reasoning:
    """`thinking` None leaves it to the server; `effort` is a value of the chat template, None its default. `preserve`: the
    reasoning of earlier turns stays in the prompt.
    """

    thinking: bool | None = None
    effort: str | None = None
    preserve: bool = True


def reasoning_of(
    effort: str | None,
    template: Mapping[str, Any] | None,
    default: bool | None,
    warnings: list[str],
) -> Reasoning:
    """From a request's reasoning effort and its `chat_template_kwargs`, of which the effort wins. `default` thinking."""
    given = _template_values(template or {}, warnings)
    preserve = given.get("preserve_thinking", True)
    switch = given.get("enable_thinking")
    thinking = default if switch is None else switch
    effort = given.get("reasoning_effort") if effort is None else effort
    if effort is None:
        return Reasoning(thinking, None, preserve)
    if effort == "none":
        return Reasoning(False, None, preserve)
    if effort not in EFFORTS:
        warnings.append(f"reasoning effort {brief(effort)}: unknown, ignored")
        return Reasoning(thinking, None, preserve)
    return Reasoning(True if switch is None else switch, EFFORTS[effort], preserve)


def _template_values(template: Mapping[str, Any], warnings: list[str]) -> dict[str, Any]:
    """The known values of `chat_template_kwargs`. They are written for some other server's template, so that none is an error."""
    warnings += [
        f"chat_template_kwargs.{warning}" for warning in unknown_fields(template, _TEMPLATE_FIELDS)
    ]
    values: dict[str, Any] = {}
    for name, (kind, wanted) in _TEMPLATE_FIELDS.items():
        value = template.get(name)
        if isinstance(value, kind):
            values[name] = value
        elif value is not None:
            warnings.append(f"chat_template_kwargs.{name}: not {wanted}, ignored")
    return values
