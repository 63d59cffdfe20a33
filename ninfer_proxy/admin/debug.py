"""Debug hooks over HTTP, which `serve --debug-hooks` adds. Knows routes, a token and one header; what a hook does is the backend's.

    GET  /admin/debug/prompts/{response}   {"tokens": [ids]}: the prompt as the engine was given it
    POST /admin/debug/drop-caches          {"dropped": continuations}: all state forgotten, in all tiers

    x-ninfer-debug-output: ["text", {"hex": "f09f"}, {"fault": "why"}]

The header, on a request that generates, makes the model say these pieces: text, bytes, or a fault of the engine at that place.
"""

from contextvars import ContextVar
from typing import Protocol

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from engine.api import RequestId
from ninfer_proxy.admin.routes import guarded
from ninfer_proxy.admin.views import View
from ninfer_proxy.errors import NotFound

OUTPUT_HEADER = "x-ninfer-debug-output"


class Hooks(Protocol):
    """What backends.hooked offers."""

    dictation: ContextVar[str | None]

    def prompt(self, request: RequestId) -> tuple[int, ...] | None: ...

    async def drop_all(self) -> int: ...


def debug_routes(hooks: Hooks, token: str) -> list[Route]:
    """Routes for the app, guarded by the admin token as the admin API is."""

    async def prompt(request: Request) -> View:
        response = request.path_params["response"]
        tokens = hooks.prompt(RequestId(response))
        if tokens is None:
            raise NotFound(f"No prompt of {response} is kept.")
        return {"tokens": tokens}

    async def drop_caches(_: Request) -> View:
        return {"dropped": await hooks.drop_all()}

    return [
        Route("/admin/debug/prompts/{response}", guarded(prompt, token), methods=["GET"]),
        Route("/admin/debug/drop-caches", guarded(drop_caches, token), methods=["POST"]),
    ]


def dictating(hooks: Hooks) -> Middleware:
    """Middleware that reads the header of each request."""
    return Middleware(Dictating, dictation=hooks.dictation)


class Dictating:
    """ASGI middleware. The backend reads the text: the task of a turn inherits the context of its request, and so the dictation."""

    def __init__(self, app: ASGIApp, dictation: ContextVar[str | None]) -> None:
        self._app = app
        self._dictation = dictation

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        text = Headers(scope=scope).get(OUTPUT_HEADER) if scope["type"] == "http" else None
        if text is not None:
            self._dictation.set(text)
        await self._app(scope, receive, send)
