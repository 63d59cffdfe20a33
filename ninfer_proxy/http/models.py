"""Endpoints that tell about the server: models, health, metrics. Knows no turns."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ninfer_proxy.errors import ModelNotFound
from ninfer_proxy.http.errors import OK, UNAVAILABLE, json_response
from ninfer_proxy.http.intake import tenant_of
from ninfer_proxy.http.settings import HttpParts
from ninfer_proxy.types import ModelInfo


class ServerEndpoints:
    """Handlers of /v1/models, /health and /metrics. The last two need no key: machines that watch have none."""

    def __init__(self, parts: HttpParts) -> None:
        self._parts = parts

    def routes(self, prefix: str) -> list[Route]:
        return [
            Route(f"{prefix}/models", self.list_models, methods=["GET"]),
            Route(f"{prefix}/models/{{model:path}}", self.show_model, methods=["GET"]),
        ]

    def root_routes(self) -> list[Route]:
        return [
            Route("/health", self.health, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
        ]

    async def list_models(self, request: Request) -> Response:
        tenant_of(request.headers, self._parts.settings)
        model = self._parts.service.model()
        return json_response({"object": "list", "data": [model_object(model)]})

    async def show_model(self, request: Request) -> Response:
        tenant_of(request.headers, self._parts.settings)
        model, asked = self._parts.service.model(), request.path_params["model"]
        if asked != model.name:
            raise ModelNotFound(f"The model {asked[:100]!r} does not exist.", param="model")
        return json_response(model_object(model))

    async def health(self, _: Request) -> Response:
        health = await self._parts.service.health()
        return json_response(health, OK if health.get("status") == "ok" else UNAVAILABLE)

    async def metrics(self, _: Request) -> Response:
        page, content_type = self._parts.metrics.render()
        return Response(page, headers={"content-type": content_type})


def model_object(model: ModelInfo) -> dict[str, Any]:
    """A model as OpenAI shows it, with its context under the names that local clients look for."""
    return {
        "id": model.name,
        "object": "model",
        "created": model.created_at,
        "owned_by": "ninfer-proxy",
        "context_length": model.context_tokens,
        "max_model_len": model.context_tokens,
    }
