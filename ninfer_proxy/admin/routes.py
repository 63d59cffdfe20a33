"""The admin API's routes: token, paths, bodies. Knows HTTP; what is done and shown is elsewhere.

    GET  /admin/slots                             POST   /admin/conversations/{c}/pin    {"minutes": 90}, or nothing
    GET  /admin/conversations/{c}                 DELETE /admin/conversations/{c}/pin
    GET  /admin/responses/{r}                     POST   /admin/conversations/{c}/evict
    GET  /admin/status

Each wants `Authorization: Bearer <admin token>`. Errors are ProxyErrors, which the app turns into answers.
"""

import hmac
from collections.abc import Awaitable, Callable

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ninfer_proxy.admin.service import Admin
from ninfer_proxy.admin.views import View
from ninfer_proxy.errors import BodyTooLarge, InvalidRequest, MalformedJson, NotAuthorised
from ninfer_proxy.wording import counted

MAX_BODY_BYTES = 4096

Action = Callable[[Request], Awaitable[View]]


def admin_routes(admin: Admin, token: str) -> list[Route]:
    """Routes for the app, which also needs the handlers of ProxyError."""

    async def pin(request: Request) -> View:
        return await admin.pin(request.path_params["conversation"], await _minutes(request))

    actions: tuple[tuple[str, str, Action], ...] = (
        ("GET", "/slots", lambda _: admin.slots()),
        ("GET", "/status", lambda _: admin.status()),
        ("GET", "/responses/{response}", lambda r: admin.explain(r.path_params["response"])),
        (
            "GET",
            "/conversations/{conversation}",
            lambda r: admin.show(r.path_params["conversation"]),
        ),
        ("POST", "/conversations/{conversation}/pin", pin),
        (
            "DELETE",
            "/conversations/{conversation}/pin",
            lambda r: admin.unpin(r.path_params["conversation"]),
        ),
        (
            "POST",
            "/conversations/{conversation}/evict",
            lambda r: admin.evict(r.path_params["conversation"]),
        ),
    )
    return [
        Route(f"/admin{path}", guarded(action, token), methods=[method])
        for method, path, action in actions
    ]


def guarded(action: Action, token: str) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that wants the admin token and answers with the view."""

    async def endpoint(request: Request) -> Response:
        _check_token(request, token)
        return Response(orjson.dumps(await action(request)), media_type="application/json")

    return endpoint


def _check_token(request: Request, token: str) -> None:
    given = request.headers.get("authorization", "")
    kind, _, secret = given.partition(" ")
    right = hmac.compare_digest(secret.strip().encode(), token.encode())
    if kind.lower() != "bearer" or not right:
        raise NotAuthorised(
            "The admin API needs its token: `Authorization: Bearer <admin token>`. It is in the file `admin-token` of the data directory, unless one was set."
        )


async def _minutes(request: Request) -> float | None:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise BodyTooLarge(f"At most {counted(MAX_BODY_BYTES, 'byte')} here.")
    if not body.strip():
        return None
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedJson(f"The body isn't JSON: {error}.") from error
    if not isinstance(document, dict):
        raise InvalidRequest('The body must be an object like {"minutes": 90}.')
    minutes = document.get("minutes")
    if minutes is None:
        return None
    if isinstance(minutes, bool) or not isinstance(minutes, int | float):
        raise InvalidRequest("minutes must be a number.", param="minutes")
    return float(minutes)
