"""Whatever JSON arrives, the answer is a 2xx or a 4xx in the error shape, and the service goes on."""

import asyncio
import functools
import json
from typing import Any

import httpx
import pytest
from fake_turns import FakeTurns, build
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette

from ninfer_proxy.http.wire_chat import ChatRequest
from ninfer_proxy.http.wire_responses import CreateRequest

WORDS = st.sampled_from(
    """message user assistant system tool function function_call function_call_output reasoning item_reference
    custom_tool_call input_text output_text input_image text none auto required function c1 resp_1""".split()  # noqa: SIM905
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | WORDS
    | st.text(st.characters(exclude_categories=()), max_size=8)
)
KEYS = st.sampled_from(
    """type role content text id call_id name arguments output summary encrypted_content tool_calls tool_call_id
        function parameters description effort format input reasoning_content""".split()  # noqa: SIM905
) | st.text(max_size=4)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


def requests(*fields: str) -> st.SearchStrategy[Any]:
    """Bodies that are nearly right: known fields, any values, sometimes plausible ones."""
    messages = st.lists(st.dictionaries(KEYS, SCALARS | st.lists(JSON, max_size=2), max_size=5))
    return JSON | st.fixed_dictionaries(
        {"input": st.just("x") | messages, "messages": messages},
        optional={name: JSON for name in fields if name not in ("input", "messages")},
    )


@functools.cache
def app() -> Starlette:
    return build(FakeTurns())


async def answer(path: str, body: bytes) -> httpx.Response:
    transport = httpx.ASGITransport(app())
    async with httpx.AsyncClient(transport=transport, base_url="http://proxy") as client:
        return await client.post(path, content=body)


def check(path: str, body: bytes) -> None:
    got = asyncio.run(answer(path, body))
    assert got.status_code < 500, got.text
    if got.status_code >= 400:
        assert got.json()["error"].keys() == {"message", "type", "param", "code"}


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/responses/input_tokens"])
@settings(max_examples=100, deadline=None)
@given(body=requests(*CreateRequest.model_fields))
def test_responses(path: str, body: Any) -> None:
    check(path, json.dumps(body).encode())


@settings(max_examples=100, deadline=None)
@given(body=requests(*ChatRequest.model_fields))
def test_chat(body: Any) -> None:
    check("/v1/chat/completions", json.dumps(body).encode())


@settings(max_examples=100, deadline=None)
@given(body=st.binary(max_size=100))
def test_bytes(body: bytes) -> None:
    check("/v1/responses", body)
