"""All that can be set, and where it is read from: defaults, then a TOML file, then the environment, then flags. Knows no consumer.

Each key is a field below with its parser and the sentence that config/README.md shows for it. Environment names are
NINFER_PROXY_<SECTION>_<KEY>; the keys that are also flags of `serve` are named after the flag.
"""

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from ninfer_proxy.config_values import (
    Parser,
    flag,
    folder,
    number,
    one_of,
    size,
    some_of,
    text,
    texts,
    whole,
)
from ninfer_proxy.errors import StartRefused

ENV_PREFIX = "NINFER_PROXY_"
CLIENT_ENV = ("NINFER_PROXY_URL", "NINFER_PROXY_CONFIG")
"""Read elsewhere: by the CLI as a client, and to find the file."""

ADMIN_TOKEN_FILE = "admin-token"
"""In the data directory, where no token is set."""


class ConfigError(StartRefused):
    """Names the key, where it was given and what would be right."""


# --- the settings ------------------------------------------------------------------------------


def key(default: Any, parse: Parser, doc: str, env: str | None = None) -> Any:
    """A field of a section. `env` is the name behind NINFER_PROXY_ where it isn't <SECTION>_<KEY>."""
    return field(default=default, metadata={"parse": parse, "doc": doc, "env": env})


def default_data_dir(env: Mapping[str, str] = os.environ) -> Path:
    """Where desktop systems keep a program's own data."""
    base = env.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "ninfer-proxy"


@dataclass(frozen=True, slots=True)
class ServerConfig:
    host: str = key("127.0.0.1", text, "Address to listen on.", "HOST")
    port: int = key(8088, whole(0, 65535), "Port to listen on; 0 takes a free one.", "PORT")
    data_dir: Path | None = key(
        None,
        folder,
        "Database, admin token and lock; one server at a time. Unset: `$XDG_DATA_HOME/ninfer-proxy`, or `~/.local/share/ninfer-proxy`.",
        "DATA_DIR",
    )
    keep_alive_s: float = key(
        5.0, number(0.1), "Silence on a stream after which a comment is sent, in seconds."
    )
    log_level: str = key(
        "info", one_of("debug", "info", "warning", "error"), "What is logged to standard error."
    )
    request_log: Path | None = key(
        None,
        folder,
        "A file that gets a line for each finished request, for `ninfer-proxy simulate`: hashes, sizes, times and outcomes, no content. Unset: none.",
    )
    debug_hooks: bool = key(
        False,
        flag,
        "Routes and a header by which tests read prompts, dictate output and drop state. Never where others can reach the server.",
    )


@dataclass(frozen=True, slots=True)
class AuthConfig:
    admin_token: str | None = key(
        None,
        text,
        "Token of the admin API and CLI. Unset: made once and kept in the data directory, readable by its owner only.",
        "ADMIN_TOKEN",
    )
    api_keys: tuple[str, ...] = key(
        (),
        texts,
        "Keys that clients may use; each sees only its own conversations. Empty: any key, or none. In the environment separated by commas.",
        "API_KEY",
    )


@dataclass(frozen=True, slots=True)
class ModelConfig:
    path: str = key(
        "demo", text, "`demo` for the bundled model, or a directory with weights.", "MODEL"
    )
    name: str | None = key(None, text, "Name shown to clients. Unset: the directory's name.")
    strict: bool = key(
        False, flag, "Refuse requests that name another model (agents often send aliases)."
    )
    thinking: bool = key(True, flag, "Whether the model thinks when a request doesn't say.")


@dataclass(frozen=True, slots=True)
class SamplingConfig:
    temperature: float = key(0.0, number(0, 2), "0 takes the likeliest token each time.")
    top_p: float = key(1.0, number(0, 1), "1 switches it off.")
    top_k: int = key(0, whole(0), "0 switches it off.")
    min_p: float = key(0.0, number(0, 1), "0 switches it off.")
    presence_penalty: float = key(0.0, number(-2, 2), "0 switches it off.")
    frequency_penalty: float = key(0.0, number(-2, 2), "0 switches it off.")
    repetition_penalty: float = key(1.0, number(0.01, 10), "1 switches it off.")


@dataclass(frozen=True, slots=True)
class EngineBudgets:
    device: str = key(
        "auto",
        one_of("auto", "cpu", "cuda"),
        "`auto` is the CPU in this version: `cuda` runs, but without kernels of its own it is slow.",
    )
    kv_dtype: str = key(
        "float32", one_of("float32", "bfloat16", "float16"), "Number format of the KV pages."
    )
    device_bytes: int = key(
        1 << 30, size, "Memory for KV pages and state on the device, besides the weights."
    )
    host_bytes: int = key(2 << 30, size, "Main memory for state moved off the device.")
    disk_bytes: int = key(
        8 << 30,
        size,
        "Files for state that outlives memory and restarts; 1 GiB of the disk is left free in any case. 0: none.",
    )
    disk_dir: Path | None = key(
        None,
        folder,
        "Where these files are, in a folder for each model and format. Unset: `engine-state` in the data directory.",
    )
    max_lanes: int = key(4, whole(1, 256), "Requests that run at once.")
    max_waiting: int = key(32, whole(0), "Requests that may queue; one more gets 429.")
    context_tokens: int = key(
        0, whole(0), "Longest prompt and answer together. 0: what the model allows."
    )
    prefill_tokens: int = key(
        1024, whole(1), "Prompt tokens of one step while nothing else is being generated."
    )
    mixed_prefill_tokens: int = key(
        256, whole(1), "Prompt tokens of one step beside requests that are generating."
    )
    threads: int = key(0, whole(0, 1024), "Threads for computing on the CPU. 0: one a core.")
    silence_s: float = key(
        60.0,
        number(1),
        "Silence of the engine after which `/health` says `degraded`, in seconds. No step may take as long.",
    )
    step_timeout_s: float = key(
        120.0,
        number(0),
        "Longest time a step may take before the engine is taken to hang and is started anew, in seconds. 0: no limit.",
    )

    @property
    def thread_count(self) -> int:
        # Of a machine's cores a container may be given a few only.
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        return self.threads or cores or 1


@dataclass(frozen=True, slots=True)
class SlotConfig:
    count: int = key(
        0,
        whole(0),
        "Most conversations with a slot of their own. 0: as many as memory holds.",
        "SLOTS",
    )
    scratch: int = key(
        4, whole(1), "Slots for side requests (titles, heartbeats), apart from `count`."
    )
    recent_s: float = key(
        1800.0,
        number(0),
        "How long after its last turn a conversation counts as in use, in seconds.",
    )
    tool_wait_s: float = key(
        120.0,
        number(0),
        "How long a conversation counts as waiting for its tool, in seconds; from then on as recently used.",
    )
    pin_s: float = key(
        3600.0,
        number(1),
        "How long a pin lasts when no time is given, and again after each use, in seconds.",
    )
    ladder_tokens: int = key(
        4096, whole(64), "Prompt tokens between the checkpoints of a long prompt."
    )
    rewind_tokens: int = key(
        256,
        whole(1),
        "How far before the ends of a prompt and of its head a checkpoint serves rewritten tails.",
    )
    kept_prompt_ends: int = key(
        4, whole(1), "Older ends of prompts of a conversation that are worth keeping."
    )


@dataclass(frozen=True, slots=True)
class IdentityConfig:
    stabilise: tuple[str, ...] = key(
        (),
        some_of("attribution", "clock", "tool_order", "tool_keys"),
        "What of a head (tools, instructions, leading system messages) the engine gets unchanging although the client changes it: see [Steady heads](#steady-heads). Empty: heads reach the engine as they were sent.",
    )


@dataclass(frozen=True, slots=True)
class StoreConfig:
    retention_days: float = key(
        30.0,
        number(0),
        "Age at which unused conversations and old responses are removed. 0: never.",
    )
    busy_timeout_s: float = key(
        15.0, number(0.1), "How long to wait while another process holds the database, in seconds."
    )


@dataclass(frozen=True, slots=True)
class LimitsConfig:
    max_body_bytes: int = key(32 << 20, size, "Larger request bodies get 413.")
    max_items: int = key(8192, whole(1), "Most items in one request; more get 400.")


@dataclass(frozen=True, slots=True)
class Config:
    server: ServerConfig = ServerConfig()
    auth: AuthConfig = AuthConfig()
    model: ModelConfig = ModelConfig()
    sampling: SamplingConfig = SamplingConfig()
    engine: EngineBudgets = EngineBudgets()
    slots: SlotConfig = SlotConfig()
    identity: IdentityConfig = IdentityConfig()
    store: StoreConfig = StoreConfig()
    limits: LimitsConfig = LimitsConfig()

    @property
    def data_dir(self) -> Path:
        return self.server.data_dir or default_data_dir()


# --- loading -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setting:
    """One key as the documentation shows it."""

    name: str
    env: str
    default: Any
    doc: str
    parse: Parser


def settings() -> tuple[Setting, ...]:
    """All keys in order, as `section.key`."""
    return tuple(
        Setting(
            name=f"{section.name}.{each.name}",
            env=ENV_PREFIX + (each.metadata["env"] or f"{section.name}_{each.name}".upper()),
            default=each.default,
            doc=each.metadata["doc"],
            parse=each.metadata["parse"],
        )
        for section in fields(Config)
        for each in _keys(section)
    )


def _keys(section: Field[Any]) -> tuple[Field[Any], ...]:
    assert section.default is not MISSING
    return fields(section.default)


def load(path: Path | None, env: Mapping[str, str], flags: Mapping[str, object]) -> Config:
    """Read the settings. `flags` maps `section.key` to a value, None where a flag wasn't given.

    `path` None takes the file that NINFER_PROXY_CONFIG names, if any. Errors: ConfigError.
    """
    known = {setting.name: setting for setting in settings()}
    if path is None and env.get("NINFER_PROXY_CONFIG"):
        path = Path(env["NINFER_PROXY_CONFIG"])
    given: dict[str, tuple[str, object]] = {}
    for source, values in (
        (str(path), _file(path, known) if path else {}),
        ("the environment", _environment(env, known)),
        ("a flag", {name: value for name, value in flags.items() if value is not None}),
    ):
        given |= {name: (source, value) for name, value in values.items()}
    parsed = {name: _parse(known[name], *given[name]) for name in given}
    return Config(**{section.name: _section(section, parsed) for section in fields(Config)})


def _section(section: Field[Any], parsed: Mapping[str, Any]) -> Any:
    kind: type[Any] = type(section.default)
    named = {each.name: f"{section.name}.{each.name}" for each in _keys(section)}
    return kind(**{key: parsed[name] for key, name in named.items() if name in parsed})


def _parse(setting: Setting, source: str, value: object) -> Any:
    try:
        return setting.parse(value)
    except ValueError as error:
        raise ConfigError(f"{setting.name} in {source} must be {error}, not {value!r}.") from None


def _file(path: Path, known: Mapping[str, Setting]) -> dict[str, object]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"The config file {path} can't be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"The config file {path} isn't TOML: {error}.") from error
    values = dict(_flat(document))
    for name in values:
        if name not in known:
            raise ConfigError(f"Unknown key {name} in {path}.{_nearest(name, known)}")
    return values


def _flat(document: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """`section.key` of each value; a table inside a section or a value outside one is an unknown key by its full name."""
    for section, content in document.items():
        if not isinstance(content, dict):
            yield section, content
            continue
        for name, value in content.items():
            yield f"{section}.{name}", value


def _environment(env: Mapping[str, str], known: Mapping[str, Setting]) -> dict[str, object]:
    names = {setting.env: setting.name for setting in known.values()}
    values: dict[str, object] = {}
    for variable, value in env.items():
        if not variable.startswith(ENV_PREFIX) or variable in CLIENT_ENV:
            continue
        if variable not in names:
            raise ConfigError(f"Unknown variable {variable}.{_nearest(variable, names)}")
        values[names[variable]] = value
    return values


def _nearest(name: str, known: Mapping[str, object]) -> str:
    """ " Did you mean ...?", by whole name first, then by the key alone (the section may be what is wrong)."""
    whole_names = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    by_key = {each.rpartition(".")[2]: each for each in known}
    keys = difflib.get_close_matches(name.rpartition(".")[2], by_key, n=1, cutoff=0.6)
    found = by_key[keys[0]] if keys else (whole_names[0] if whole_names else None)
    return f" Did you mean {found}?" if found else f" Known are: {', '.join(known)}."
