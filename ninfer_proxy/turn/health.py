"""Whether a turn could be run and kept now, and what stands in the way: the engine's word and silence, a glance at the store. Knows no HTTP."""

from collections.abc import Iterator, Mapping
from typing import Any

from ninfer_proxy.backends.base import Backend, BackendStatus
from ninfer_proxy.errors import StoreUnavailable
from ninfer_proxy.store.store import Store


async def health(store: Store, backend: Backend, silence_s: float) -> Mapping[str, Any]:
    """`status` is "ok" exactly when nothing stands in the way, "degraded" when a ready engine is silent for longer than
    `silence_s` or the store is in trouble, else the engine's state. `reasons` says it in sentences.
    """
    status = backend.status()
    trouble = await store.trouble()
    reasons = [*_engine_reasons(status, silence_s), *([trouble.message] if trouble else [])]
    state = "degraded" if reasons else "ok"
    return {
        "status": state if status.state == "ready" else status.state,
        "reasons": reasons,
        "engine": _engine_view(status),
        "store": _store_view(trouble),
    }


def _engine_reasons(status: BackendStatus, silence_s: float) -> Iterator[str]:
    if status.state != "ready":
        state = "in a crash loop" if status.state == "crash_loop" else status.state
        retry = status.retry_in_s
        next_start = "" if retry is None else f" It is started again in {retry:.0f} s."
        yield f"The engine is {state}: {status.detail}.{next_start}"
    elif status.silent_s > silence_s:
        yield (
            f"The engine has given no sign of life for {status.silent_s:.0f} s, although it was asked. "
            "It hangs, or a step takes longer than engine.silence_s; after engine.step_timeout_s it is started anew."
        )


def _engine_view(status: BackendStatus) -> Mapping[str, Any]:
    ready = status.ready
    return {
        "state": status.state,
        "detail": status.detail,
        "silent_s": round(status.silent_s, 1),
        "restarts": status.restarts,
        "retry_in_s": None if status.retry_in_s is None else round(status.retry_in_s, 1),
        "device": ready.device if ready else None,
        "context_tokens": ready.context_tokens if ready else None,
        "max_lanes": ready.max_lanes if ready else None,
    }


def _store_view(trouble: StoreUnavailable | None) -> Mapping[str, Any]:
    if trouble is None:
        return {"state": "ok", "detail": ""}
    return {"state": trouble.code, "detail": trouble.message}
