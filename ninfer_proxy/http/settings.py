"""What the HTTP side is given when it is built: its limits, keys and partners. Values only; no behaviour here."""

from collections.abc import Callable
from dataclasses import dataclass

from ninfer_proxy.http.service import TurnService
from ninfer_proxy.http.wire_common import WireDefaults
from ninfer_proxy.metrics import Metrics


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """`api_keys` empty: any key is welcome, and none. `tenant_secret` (at most 64 bytes) keys the digest that names tenants; it must
    outlive restarts, since stored state is found by that name. `keep_alive_s` is the silence on a stream after which a
    comment is sent, `still_running_s` the silence after which an event is.
    """

    defaults: WireDefaults
    tenant_secret: bytes
    api_keys: tuple[str, ...] = ()
    max_body_bytes: int = 32 << 20
    max_json_depth: int = 100
    max_json_parts: int = 1_000_000
    keep_alive_s: float = 5.0
    still_running_s: float = 60.0


@dataclass(frozen=True, slots=True)
class HttpParts:
    """What every endpoint is given. `clock` gives Unix seconds."""

    service: TurnService
    settings: HttpSettings
    metrics: Metrics
    clock: Callable[[], float]
