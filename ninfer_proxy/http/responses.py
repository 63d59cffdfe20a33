"""The Responses endpoints: create, read, delete, input items, count tokens. Knows their fields; doesn't know how a turn runs."""

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ninfer_proxy.errors import InvalidRequest, NotFound
from ninfer_proxy.http.answers import stream, turn_headers
from ninfer_proxy.http.disconnect import begin, finish, unless_gone
from ninfer_proxy.http.errors import json_response
from ninfer_proxy.http.intake import read_json, tenant_of
from ninfer_proxy.http.service import ItemPage
from ninfer_proxy.http.settings import HttpParts
from ninfer_proxy.http.sse import EventStream
from ninfer_proxy.http.wire_events import ResponsesEncoder
from ninfer_proxy.http.wire_responses import parse_create
from ninfer_proxy.types import Turn

MAX_PAGE, DEFAULT_PAGE = 100, 20


class ResponsesEndpoints:
    """Handlers under /v1/responses."""

    def __init__(self, parts: HttpParts) -> None:
        self._parts = parts

    def routes(self, prefix: str) -> list[Route]:
        path = f"{prefix}/responses"
        return [
            Route(path, self.create, methods=["POST"]),
            Route(f"{path}/input_tokens", self.count_tokens, methods=["POST"]),
            Route(f"{path}/{{response_id}}", self.retrieve, methods=["GET"]),
            Route(f"{path}/{{response_id}}", self.delete, methods=["DELETE"]),
            Route(f"{path}/{{response_id}}/input_items", self.input_items, methods=["GET"]),
        ]

    async def create(self, request: Request) -> Response | EventStream:
        turn = await self._turn(request)
        running = await begin(self._parts.service, turn, request.receive)
        if turn.stream:
            encoder = ResponsesEncoder(running.opening_body)
            return stream(turn, running, encoder, self._parts.settings)
        completed = await finish(running, request.receive)
        return json_response(completed.body, headers=turn_headers(turn, running))

    async def count_tokens(self, request: Request) -> Response:
        turn = await self._turn(request)
        tokens = await unless_gone(request.receive, self._parts.service.count_tokens(turn))
        return json_response({"object": "response.input_tokens", "input_tokens": tokens})

    async def retrieve(self, request: Request) -> Response:
        tenant, response_id = tenant_of(request.headers, self._parts.settings), _id_of(request)
        if request.query_params.get("stream") == "true":
            raise InvalidRequest("Stored responses can't be streamed.", param="stream")
        body = await self._parts.service.get_response(tenant, response_id)
        if body is None:
            raise _no_response(response_id)
        return json_response(body)

    async def delete(self, request: Request) -> Response:
        tenant, response_id = tenant_of(request.headers, self._parts.settings), _id_of(request)
        if not await self._parts.service.delete_response(tenant, response_id):
            raise _no_response(response_id)
        return json_response({"id": response_id, "object": "response", "deleted": True})

    async def input_items(self, request: Request) -> Response:
        tenant, response_id = tenant_of(request.headers, self._parts.settings), _id_of(request)
        query = request.query_params
        page = await self._parts.service.input_items(
            tenant, response_id, query.get("after"), _limit_of(query), _order_of(query)
        )
        if page is None:
            raise _no_response(response_id)
        return json_response(page_object(page))

    async def _turn(self, request: Request) -> Turn:
        settings = self._parts.settings
        tenant = tenant_of(request.headers, settings)
        return parse_create(
            await read_json(request, settings),
            headers=request.headers,
            tenant=tenant,
            now=self._parts.clock(),
            defaults=settings.defaults,
        )


def page_object(page: ItemPage) -> dict[str, Any]:
    """A page of items as lists are shown."""
    return {
        "object": "list",
        "data": page.data,
        "first_id": page.data[0]["id"] if page.data else None,
        "last_id": page.data[-1]["id"] if page.data else None,
        "has_more": page.has_more,
    }


def _id_of(request: Request) -> str:
    response_id = request.path_params["response_id"]
    assert isinstance(response_id, str)
    return response_id


def _limit_of(query: Mapping[str, str]) -> int:
    text = query.get("limit", str(DEFAULT_PAGE))
    if text.isdecimal() and 1 <= int(text[:9]) <= MAX_PAGE:
        return int(text)
    raise InvalidRequest(f"limit must be a number from 1 to {MAX_PAGE}.", param="limit")


def _order_of(query: Mapping[str, str]) -> str:
    order = query.get("order", "desc")
    if order in ("asc", "desc"):
        return order
    raise InvalidRequest("order must be asc or desc.", param="order")


def _no_response(response_id: str) -> NotFound:
    return NotFound(f"Response with id {response_id[:100]!r} not found.", param="response_id")
