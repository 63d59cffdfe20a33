"""Builds an engine from its configuration: weights, text side, memory, loop. The engine's one place that wires; decides nothing."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.api import Event, Loading, Ready
from engine.cache.disk_files import DiskFiles, Identity
from engine.cache.disk_worker import DiskWorker
from engine.cache.store import Cache
from engine.config import EngineConfig
from engine.errors import ConfigRefused
from engine.loop import Loop
from engine.models.batch import CachePools, allocate_pools
from engine.models.config import ModelConfig
from engine.models.qwen3_5 import Qwen35Model
from engine.ops import native
from engine.planner.admission import Limits
from engine.planner.memory import Budget as Bytes
from engine.planner.memory import Geometry, MemoryPlan, plan_memory
from engine.planner.step import Budget
from engine.runner import Runner
from engine.scheduler import Scheduler
from engine.text.model import TextModel
from engine.weights import load_model

SAMPLED_BYTES = 1 << 16
SAMPLES = 64


@dataclass(frozen=True, slots=True)
class Assembly:
    loop: Loop
    text: TextModel
    ready: Ready
    plan: MemoryPlan
    disk: DiskWorker | None


def assemble(
    config: EngineConfig,
    process_id: str,
    publish: Callable[[list[Event]], None],
    clock: Callable[[], float],
    seeds: Callable[[], int],
) -> Assembly:
    """Tells `publish` how loading goes. Raises ConfigRefused, or ConfigError, WeightsError, TextFilesError, OSError of the model's files."""
    torch.set_num_threads(config.threads)
    directory, device = Path(config.model_dir), torch.device(config.device)
    publish([Loading("reading the tokenizer")])
    text = TextModel.load(directory)
    if device.type == "cpu":
        publish([Loading("preparing the CPU kernels")])
        native.library()
    publish([Loading("reading the weights")])
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    model = load_model(directory, device, dtype)
    publish([Loading("reserving memory")])
    plan = plan_memory(
        _geometry(config, model.config, dtype),
        Bytes(config.device_bytes, config.host_bytes, config.max_lanes, config.disk_bytes),
    )
    pools = _pools(config, plan, model, device)
    weights = weights_id(directory, f"{config.kv_dtype} {config.page_tokens}")
    identity = Identity(
        weights=weights,
        computing=f"{device.type} {dtype}",
        page_tokens=config.page_tokens,
        page_bytes=plan.geometry.page_bytes,
        image_bytes=plan.geometry.image_bytes,
    )
    disk = _disk(config, identity)
    with _room_for("host_bytes", plan.host_cells * plan.geometry.page_bytes):
        cache = Cache(plan, pools, f"{process_id}.", disk)
    if cache.disk is not None:
        publish([Loading("looking through the state on disk")])
        cache.disk.start(clock())
    scheduler = _scheduler(config, plan, cache, model)
    runner = Runner(model, pools, scheduler.cache.lanes, text.vocab_limit)
    stops = frozenset(text.stop_token_ids)
    loop = Loop(scheduler, runner, stops, publish, clock, seeds, config.check_integrity)
    ready = Ready(
        model=directory.name,
        weights_id=weights,
        tokenizer_id=text.tokenizer_id,
        context_tokens=plan.geometry.context_tokens,
        max_lanes=config.max_lanes,
        device=str(device),
        continuations=cache.continuations(),
        unpinned_host_bytes=cache.pages.host.unpinned_bytes,
    )
    return Assembly(loop, text, ready, plan, disk and disk[1])


def _disk(config: EngineConfig, identity: Identity) -> tuple[DiskFiles, DiskWorker] | None:
    if not config.disk_bytes or config.disk_dir is None:
        return None
    worker = DiskWorker()
    worker.start()
    return DiskFiles(Path(config.disk_dir), identity), worker


def _geometry(config: EngineConfig, model: ModelConfig, dtype: torch.dtype) -> Geometry:
    if config.context_tokens is not None and config.context_tokens > model.context_tokens:
        raise ConfigRefused(
            f"context_tokens is {config.context_tokens}, the model was made for {model.context_tokens}"
        )
    page = torch.Size(model.page_shape(config.page_tokens)).numel()
    recurrent = torch.Size(model.recurrent_shape).numel()
    conv = torch.Size(model.conv_shape).numel()
    return Geometry(
        page_tokens=config.page_tokens,
        page_bytes=page * _kv_dtype(config).itemsize,
        image_bytes=recurrent * torch.float32.itemsize + conv * dtype.itemsize,
        context_tokens=config.context_tokens or model.context_tokens,
        workspace_bytes=_workspace(config, model, dtype),
    )


def _workspace(config: EngineConfig, model: ModelConfig, dtype: torch.dtype) -> int:
    """The least that a step's tensors take: a full prompt chunk in the feed-forward layer (what comes in twice, gate, up and their
    product), and the logits of all lanes.
    """
    chunk = config.prefill_tokens * (2 * model.hidden_size + 3 * model.intermediate_size)
    logits = config.max_lanes * model.vocab_size * torch.float32.itemsize
    return chunk * dtype.itemsize + logits


def _pools(
    config: EngineConfig, plan: MemoryPlan, model: Qwen35Model, device: torch.device
) -> CachePools:
    size = plan.device_cells * plan.geometry.page_bytes + plan.lane_bytes
    with _room_for("device_bytes and lanes", size):
        return allocate_pools(
            model.config,
            plan.device_cells,
            plan.lanes,
            config.page_tokens,
            model.dtype,
            device,
            _kv_dtype(config),
        )


@contextmanager
def _room_for(what: str, size: int) -> Iterator[None]:
    """Raises ConfigRefused where the system hasn't got so many bytes."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise ConfigRefused(f"there are no {size} bytes for {what}: {reason}") from error


def _kv_dtype(config: EngineConfig) -> torch.dtype:
    dtype = getattr(torch, config.kv_dtype)
    assert isinstance(dtype, torch.dtype)
    return dtype


def _scheduler(
    config: EngineConfig, plan: MemoryPlan, cache: Cache, model: Qwen35Model
) -> Scheduler:
    limits = Limits(
        context_tokens=plan.geometry.context_tokens,
        page_tokens=config.page_tokens,
        device_cells=plan.device_cells,
        max_waiting=config.max_waiting,
    )
    budget = Budget(
        config.prefill_tokens, config.mixed_prefill_tokens, context_weight=model.context_weight
    )
    return Scheduler(cache, limits, budget)


def weights_id(directory: Path, form: str) -> str:
    """Digest of a model's config and weights and of `form`, what else state depends on. Of large files it reads samples:
    their size, their beginning (names, shapes) and 64 KiB at even distances.
    """
    digest = hashlib.sha256(form.encode())
    digest.update((directory / "config.json").read_bytes())
    for path in sorted(directory.glob("*.safetensors")):
        size = path.stat().st_size
        digest.update(f"{path.name} {size}".encode())
        step = max(SAMPLED_BYTES, size // SAMPLES)
        with path.open("rb") as file:
            for offset in range(0, size, step):
                file.seek(offset)
                digest.update(file.read(SAMPLED_BYTES))
    return digest.hexdigest()[:32]
