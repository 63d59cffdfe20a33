"""EngineConfig: every choice the engine process starts with, frozen from then on. Knows no tensors."""

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

from engine.errors import ConfigRefused

GIB = 1 << 30
KV_DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """`device_bytes` holds KV pages and state images of running sequences and device checkpoints (weights and lanes are not
    in it), `host_bytes` demoted checkpoints, `disk_bytes` of files under `disk_dir` those that outlive memory and process (0 or None:
    no disk tier). `context_tokens` None takes the model's. `prefill_tokens` is the prompt budget of a step when nothing decodes,
    `mixed_prefill_tokens` the one beside decodes. A step that takes longer than `step_timeout_s` seconds is taken to hang, and the
    process ends; 0 sets no limit.
    """

    model_dir: str
    device: str = "cpu"
    kv_dtype: str = "float32"
    device_bytes: int = 1 * GIB
    host_bytes: int = 2 * GIB
    disk_bytes: int = 0
    disk_dir: str | None = None
    page_tokens: int = 64
    max_lanes: int = 4
    max_waiting: int = 32
    context_tokens: int | None = None
    prefill_tokens: int = 1024
    mixed_prefill_tokens: int = 256
    threads: int = 2
    step_timeout_s: float = 120.0
    check_integrity: bool = False

    def __post_init__(self) -> None:
        for name in (
            "page_tokens",
            "max_lanes",
            "prefill_tokens",
            "mixed_prefill_tokens",
            "threads",
        ):
            if getattr(self, name) < 1:
                raise ConfigRefused(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("device_bytes", "host_bytes", "disk_bytes", "max_waiting", "step_timeout_s"):
            if getattr(self, name) < 0:
                raise ConfigRefused(f"{name} must not be negative, but is {getattr(self, name)}")
        if self.kv_dtype not in KV_DTYPE_BYTES:
            known = ", ".join(KV_DTYPE_BYTES)
            raise ConfigRefused(f"kv_dtype must be one of {known}, not {self.kv_dtype!r}")

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "EngineConfig":
        """Raises ConfigRefused for text that is no object, and for unknown or mistyped keys."""
        try:
            document: Any = json.loads(text)
        except ValueError as error:
            raise ConfigRefused(f"engine configuration is not JSON: {error}") from error
        if not isinstance(document, dict) or not isinstance(document.get("model_dir"), str):
            raise ConfigRefused("engine configuration must be an object with a model_dir")
        kinds = {field.name: field.type for field in fields(cls)}
        for key, value in document.items():
            if key not in kinds:
                raise ConfigRefused(f"engine configuration has an unknown key {key!r}")
            if not _matches(value, kinds[key]):
                raise ConfigRefused(f"engine configuration: {key} has the wrong type: {value!r}")
        return cls(**document)


def _matches(value: object, kind: object) -> bool:
    nothing = type(None)
    exact: dict[object, tuple[type, ...]] = {
        int | None: (int, nothing),
        str | None: (str, nothing),
        float: (float, int),
    }
    return type(value) in exact.get(kind, (kind,))
