"""All routes of the HTTP side, each with and without `/v1`. Knows the endpoints; the app adds middleware and error handlers."""

import time
from collections.abc import Callable

from starlette.routing import Route

from ninfer_proxy.http.chat import ChatEndpoint
from ninfer_proxy.http.models import ServerEndpoints
from ninfer_proxy.http.responses import ResponsesEndpoints
from ninfer_proxy.http.service import TurnService
from ninfer_proxy.http.settings import HttpParts, HttpSettings
from ninfer_proxy.metrics import Metrics

PREFIXES = ("/v1", "")


def routes(
    service: TurnService,
    settings: HttpSettings,
    metrics: Metrics,
    clock: Callable[[], float] = time.time,
) -> list[Route]:
    """Routes for Starlette(routes=…), which also needs `errors.boundary` as middleware and `errors.error_handlers`."""
    parts = HttpParts(service, settings, metrics, clock)
    server = ServerEndpoints(parts)
    found = server.root_routes()
    for prefix in PREFIXES:
        for endpoints in (ResponsesEndpoints(parts), ChatEndpoint(parts), server):
            found += endpoints.routes(prefix)
    return found
