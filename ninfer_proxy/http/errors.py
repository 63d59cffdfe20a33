"""Errors → answers: the only place a status code is written. Knows the error shape and the log; doesn't know what went wrong where."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import uuid4

import orjson
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ninfer_proxy.errors import EngineUnavailable, ProxyError
from ninfer_proxy.http.disconnect import ClientGone
from ninfer_proxy.metrics import Metrics

logger = logging.getLogger(__name__)

OK, UNAVAILABLE = 200, 503
_CLIENT_CLOSED_REQUEST = 499
_CODES: Mapping[int, str] = {404: "not_found", 405: "method_not_allowed"}

Handler = Callable[[Request, Exception], Awaitable[Response]]


def json_response(
    value: Any, status: int = OK, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(orjson.dumps(value), status, headers, media_type="application/json")


def error_object(error: ProxyError) -> dict[str, Any]:
    return {
        "error": {
            "message": error.message,
            "type": error.type,
            "param": error.param,
            "code": error.code,
        }
    }


def error_response(error: ProxyError) -> Response:
    headers = {}
    if error.retry_after_s is not None:
        headers["retry-after"] = str(error.retry_after_s)
    return json_response(error_object(error), error.status, headers)


def stopping() -> ProxyError:
    """What is told where a request is called off: only a server that stops does that."""
    return EngineUnavailable("The service is stopping.", retry_after_s=5)


def error_handlers(metrics: Metrics) -> dict[Any, Handler]:
    """Handlers for Starlette's `exception_handlers`."""

    async def told(_: Request, error: Exception) -> Response:
        assert isinstance(error, ProxyError)
        metrics.error_told(error.code)
        if error.status >= ProxyError.status:
            logger.warning("%s: %s", error.code, error.message)
        return error_response(error)

    async def routed(request: Request, error: Exception) -> Response:
        """404 and 405 of the router."""
        assert isinstance(error, HTTPException)
        code = _CODES.get(error.status_code, "invalid_request")
        metrics.error_told(code)
        message = f"{error.detail}: {request.method} {request.url.path}"
        fields = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
        return json_response({"error": fields}, error.status_code, error.headers)

    async def left(request: Request, _: Exception) -> Response:
        logger.info("client left %s %s", request.method, request.url.path)
        return Response(status_code=_CLIENT_CLOSED_REQUEST)

    return {ProxyError: told, HTTPException: routed, ClientGone: left}


class Boundary:
    """ASGI middleware: gives each request an id, counts answers, and turns what nobody caught into a 500 in the error shape."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = f"req_{uuid4().hex}"
        status: int | None = None

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [
                    *message.get("headers", ()),
                    (b"x-request-id", request_id.encode()),
                ]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except asyncio.CancelledError:
            if status is None:
                await error_response(stopping())(scope, receive, send_with_id)
            raise
        except Exception:
            logger.exception("%s %s %s failed", request_id, scope["method"], scope["path"])
            self._metrics.error_told(ProxyError.code)
            if status is not None:
                raise
            failure = ProxyError(f"Internal error; the log has it under {request_id}.")
            await error_response(failure)(scope, receive, send_with_id)
        finally:
            if status is not None:
                self._metrics.request_answered(_route_of(scope), status)


def _route_of(scope: Scope) -> str:
    """The route's pattern, so that the metric has as many labels as there are routes."""
    route = scope.get("route")
    return getattr(route, "path", "unmatched")


def boundary(metrics: Metrics) -> Middleware:
    """The outermost middleware of the app."""
    return Middleware(Boundary, metrics=metrics)
