"""What both wire formats share: validation, sampling fields, functions, client evidence. Pure; knows no endpoint."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ninfer_proxy.errors import InvalidRequest, ModelNotFound
from ninfer_proxy.items import NO_PARAMETERS
from ninfer_proxy.types import ClientEvidence, Sampling, ToolSpec
from ninfer_proxy.wording import counted

IDENTITY_HEADERS = frozenset(
    {
        "conversation_id",
        "originator",
        "session-id",
        "session_id",
        "thread-id",
        "traceparent",
        "x-app",
        "x-claude-code-agent-id",
        "x-claude-code-parent-agent-id",
        "x-claude-code-session-id",
        "x-client-request-id",
        "x-codex-parent-thread-id",
        "x-codex-turn-metadata",
        "x-codex-window-id",
        "x-conversation-id",
        "x-dynamo-session-id",
        "x-grok-conv-id",
        "x-openai-subagent",
        "x-openwebui-chat-id",
        "x-parent-session-id",
        "x-session-affinity",
        "x-session-id",
        "x-session-key",
        "x-smg-routing-key",
        "x-stainless-retry-count",
    }
)

MAX_STOPS = 16
MAX_WARNINGS = 20


@dataclass(frozen=True, slots=True)
class WireDefaults:
    """What a request means where it says nothing, and how much it may say.

    `thinking` None leaves it to the model. `strict_model` refuses other model names than `model`.
    """

    model: str
    strict_model: bool = False
    sampling: Sampling = field(default_factory=Sampling)
    thinking: bool | None = None
    max_items: int = 8192
    max_tools: int = 1024


Temperature = Annotated[float | None, Field(ge=0, le=2)]
Probability = Annotated[float | None, Field(ge=0, le=1)]
Penalty = Annotated[float | None, Field(ge=-2, le=2)]
TokenLimit = Annotated[int | None, Field(ge=1)]
# Some servers write "no top_k" as -1, and their clients bring the habit along.
TopK = Annotated[
    int | None, Field(ge=0), BeforeValidator(lambda value: 0 if value == -1 else value)
]
Seed = Annotated[int | None, Field(ge=-(2**63), lt=2**63)]


class WireRequest(BaseModel):
    """Fields that mean the same in both formats. Types are strict (a number in a string is an error), unknown fields are let
    through, null means not given.
    """

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)

    model: str | None = None
    stream: bool | None = None
    store: bool | None = None
    temperature: Temperature = None
    top_p: Probability = None
    top_k: TopK = None
    min_p: Probability = None
    presence_penalty: Penalty = None
    frequency_penalty: Penalty = None
    repetition_penalty: Annotated[float | None, Field(gt=0, le=10)] = None
    seed: Seed = None
    stop: str | list[str] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    metadata: dict[str, Any] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    service_tier: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    def sampling(self, defaults: Sampling) -> Sampling:
        given = {
            name: value
            for name in Sampling.__dataclass_fields__
            if (value := getattr(self, name)) is not None
        }
        return Sampling(**{name: given.get(name, getattr(defaults, name)) for name in FIELDS})

    def stops(self) -> tuple[str, ...]:
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if len(stops) > MAX_STOPS:
            raise InvalidRequest(
                f"At most {counted(MAX_STOPS, 'stop string')} may be sent.", param="stop"
            )
        return tuple(stop for stop in stops if stop)


FIELDS = tuple(Sampling.__dataclass_fields__)

Request = TypeVar("Request", bound=BaseModel)


def validate(kind: type[Request], value: Any) -> Request:
    """`value` as a `kind`. Errors: InvalidRequest naming the first field that doesn't fit."""
    if not isinstance(value, Mapping):
        raise InvalidRequest("The body must be a JSON object.")
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
    param = _client_path(problems[0]["loc"])
    reasons = "; ".join(item["msg"] for item in problems if _client_path(item["loc"]) == param)
    raise InvalidRequest(f"Invalid value for {param}: {reasons}.", param=param)


def _client_path(location: Sequence[int | str]) -> str:
    """A pydantic location without the names of union members, which no client knows."""
    return path_of([step for step in location if not _is_union_member(step)])


def _is_union_member(step: int | str) -> bool:
    return isinstance(step, str) and (step in ("str", "int", "float", "bool") or "[" in step)


def path_of(steps: Sequence[int | str]) -> str:
    """`("input", 0, "content")` → `input[0].content`."""
    path = ""
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path


def unknown_fields(value: Mapping[str, Any], known: Mapping[str, Any]) -> list[str]:
    """Warnings for the fields that nothing here reads."""
    return [f"{name[:80]}: unknown field, ignored" for name in value if name not in known]


def brief(value: Any) -> str:
    """What a client sent, short enough for a warning."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def capped(warnings: Sequence[str]) -> tuple[str, ...]:
    """The first warnings, and how many there were beyond them: a client can cause any number."""
    if len(warnings) <= MAX_WARNINGS:
        return tuple(warnings)
    return (*warnings[:MAX_WARNINGS], f"and {len(warnings) - MAX_WARNINGS} more")


def served_model(requested: str | None, defaults: WireDefaults) -> str:
    """The model name a turn goes by. Errors: ModelNotFound for another name than the served one, where that matters."""
    if defaults.strict_model and requested != defaults.model:
        raise ModelNotFound(f"The model {brief(requested)} does not exist.", param="model")
    return requested or defaults.model


def functions_of(
    tools: Sequence[Mapping[str, Any]], limit: int, warnings: list[str]
) -> tuple[ToolSpec, ...]:
    """The functions among `tools`, flat or nested under `function`; other tool types get a warning.

    Errors: InvalidRequest for a function that can't be offered.
    """
    if len(tools) > limit:
        raise InvalidRequest(f"At most {counted(limit, 'tool')} may be sent.", param="tools")
    found: list[ToolSpec] = []
    for index, tool in enumerate(tools):
        kind = tool.get("type", "function")
        if kind == "function":
            nested = tool.get("function")
            found.append(_function(nested if isinstance(nested, Mapping) else tool, index))
        else:
            warnings.append(f"tools[{index}]: type {brief(kind)} is not supported, ignored")
    return tuple(found)


def _function(spec: Mapping[str, Any], index: int) -> ToolSpec:
    name, description, parameters = (spec.get(key) for key in ("name", "description", "parameters"))
    if not isinstance(name, str) or not name:
        raise InvalidRequest("A function needs a name.", param=f"tools[{index}].name")
    if not isinstance(description, str | None):
        raise InvalidRequest("A description must be a string.", param=f"tools[{index}].description")
    if not isinstance(parameters, Mapping | None):
        raise InvalidRequest(
            "Parameters must be a JSON schema.", param=f"tools[{index}].parameters"
        )
    return ToolSpec(name, description, parameters or NO_PARAMETERS)


def tool_choice_of(choice: str | Mapping[str, Any] | None, warnings: list[str]) -> str:
    """none or auto, or what was asked beyond them (`required`, `function:NAME`), which is not enforced yet: that gets a warning."""
    if choice is None or choice in ("auto", "none"):
        return str(choice or "auto")
    if isinstance(choice, Mapping):
        return _named_choice(choice, warnings)
    if choice in ("required", "any"):
        warnings.append("tool_choice: the model is asked for no call, only allowed one")
        return "required"
    raise InvalidRequest(f"tool_choice can't be {brief(choice)}.", param="tool_choice")


def _named_choice(choice: Mapping[str, Any], warnings: list[str]) -> str:
    nested = choice.get("function")
    name = (nested if isinstance(nested, Mapping) else choice).get("name")
    if choice.get("type") == "allowed_tools" and choice.get("mode") == "none":
        return "none"
    if choice.get("type") == "function" and isinstance(name, str):
        warnings.append(f"tool_choice: {brief(name)} is not enforced")
        return f"function:{name}"
    warnings.append(f"tool_choice: {brief(choice.get('type'))} is not enforced")
    return "auto"


def evidence_of(
    request: WireRequest, headers: Mapping[str, str], client_metadata: Mapping[str, Any] | None
) -> ClientEvidence:
    """What the request says about its sender. `headers` have lower-case names."""
    return ClientEvidence(
        headers={name: value for name, value in headers.items() if name in IDENTITY_HEADERS},
        user_agent=headers.get("user-agent", ""),
        prompt_cache_key=request.prompt_cache_key,
        user=request.user,
        metadata={**(client_metadata or {}), **(request.metadata or {})},
    )


def metadata_of(metadata: Mapping[str, Any] | None, warnings: list[str]) -> dict[str, str]:
    """Metadata as it is stored: strings. Values of other types are kept out, with a warning."""
    kept: dict[str, str] = {}
    for name, value in (metadata or {}).items():
        if isinstance(value, str):
            kept[name] = value
        else:
            warnings.append(f"metadata.{name[:80]}: not a string, not stored")
    return kept
