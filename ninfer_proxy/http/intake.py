"""A request's key and body: who is asking, and the JSON they sent, within limits. Knows no endpoint."""

from collections.abc import Mapping, Sequence
from hmac import compare_digest
from typing import Any

from blake3 import blake3
from starlette.requests import ClientDisconnect, Request

from ninfer_proxy.errors import BodyTooLarge, NotAuthorised
from ninfer_proxy.http.disconnect import ClientGone
from ninfer_proxy.http.settings import HttpSettings
from ninfer_proxy.http.wire_json import parse_json
from ninfer_proxy.types import TenantKey
from ninfer_proxy.wording import counted

ANONYMOUS = TenantKey("anonymous")


def tenant_of(headers: Mapping[str, str], settings: HttpSettings) -> TenantKey:
    """The isolation domain of a request. Errors: NotAuthorised where keys are configured and this isn't one of them."""
    key = _api_key(headers)
    if settings.api_keys and not _known(key, settings.api_keys):
        raise NotAuthorised("Incorrect API key provided.")
    return tenant_name(key, settings.tenant_secret)


def tenant_name(api_key: str, secret: bytes) -> TenantKey:
    """A name that tells tenants apart without telling their keys."""
    if not api_key:
        return ANONYMOUS
    mac_key = blake3(secret).digest()
    return TenantKey(blake3(api_key.encode(), key=mac_key).hexdigest(16))


def _api_key(headers: Mapping[str, str]) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return headers.get("x-api-key", "").strip()


def _known(key: str, keys: Sequence[str]) -> bool:
    """Compares with every key, so that the time taken says nothing about them."""
    matches = [compare_digest(key.encode(), known.encode()) for known in keys]
    return any(matches)


async def read_json(request: Request, settings: HttpSettings) -> Any:
    """The body as a JSON value. Errors: BodyTooLarge, MalformedJson, InvalidRequest, ClientGone."""
    try:
        body = await _read_body(request, settings.max_body_bytes)
    except ClientDisconnect:
        raise ClientGone from None
    return parse_json(body, max_depth=settings.max_json_depth, max_parts=settings.max_json_parts)


async def _read_body(request: Request, limit: int) -> bytes:
    """The whole body, or BodyTooLarge as soon as it is known to be: from its declared length, or after `limit` bytes."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise _too_large(limit)
    return bytes(body)


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"The body is larger than {counted(limit, 'byte')}.")
