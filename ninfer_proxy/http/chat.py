"""The Chat Completions endpoint. Knows its fields; doesn't know how a turn runs."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ninfer_proxy.http.answers import stream, turn_headers
from ninfer_proxy.http.disconnect import begin, finish
from ninfer_proxy.http.errors import json_response
from ninfer_proxy.http.intake import read_json, tenant_of
from ninfer_proxy.http.service import RunningTurn
from ninfer_proxy.http.settings import HttpParts
from ninfer_proxy.http.sse import EventStream
from ninfer_proxy.http.wire_chat import ChatTurn, parse_chat
from ninfer_proxy.http.wire_chat_events import ChatEncoder, completion_object


class ChatEndpoint:
    """Handler of /v1/chat/completions."""

    def __init__(self, parts: HttpParts) -> None:
        self._parts = parts

    def routes(self, prefix: str) -> list[Route]:
        return [Route(f"{prefix}/chat/completions", self.create, methods=["POST"])]

    async def create(self, request: Request) -> Response | EventStream:
        chat = await self._turn(request)
        running = await begin(self._parts.service, chat.turn, request.receive)
        if chat.turn.stream:
            return stream(chat.turn, running, _encoder(chat, running), self._parts.settings)
        completed = await finish(running, request.receive)
        body = completion_object(
            completed,
            response_id=running.response_id,
            created_at=running.created_at,
            model=chat.turn.model,
        )
        return json_response(body, headers=turn_headers(chat.turn, running))

    async def _turn(self, request: Request) -> ChatTurn:
        settings = self._parts.settings
        tenant = tenant_of(request.headers, settings)
        return parse_chat(
            await read_json(request, settings),
            headers=request.headers,
            tenant=tenant,
            now=self._parts.clock(),
            defaults=settings.defaults,
        )


def _encoder(chat: ChatTurn, running: RunningTurn) -> ChatEncoder:
    return ChatEncoder(
        response_id=running.response_id,
        created_at=running.created_at,
        model=chat.turn.model,
        include_usage=chat.include_usage,
    )
