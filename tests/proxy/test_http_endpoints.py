"""Every endpoint and every error over ASGI, in process: status, shape, headers."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fake_turns import SETTINGS, FakeTurns, build, overloaded

from ninfer_proxy.backends.scripted import Performance, call, reasoning, text
from ninfer_proxy.errors import PreviousResponseNotFound
from ninfer_proxy.http.settings import HttpSettings
from ninfer_proxy.metrics import Metrics


def client_of(
    service: FakeTurns, settings: HttpSettings = SETTINGS, metrics: Metrics | None = None
) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(build(service, settings, metrics))
    return httpx.AsyncClient(transport=transport, base_url="http://proxy")


@pytest.fixture
async def service() -> FakeTurns:
    return FakeTurns()


@pytest.fixture
async def client(service: FakeTurns) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(service) as client:
        yield client


def check_error(answer: httpx.Response, status: int, code: str, param: str | None = None) -> None:
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert (error["code"], error["param"]) == (code, param)
    assert error["message"]
    assert error["type"]


def frames(answer: httpx.Response) -> list[tuple[str | None, Any]]:
    found: list[tuple[str | None, Any]] = []
    for block in answer.text.removesuffix("\n\n").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
        if fields and fields["data"] != "[DONE]":
            found.append((fields.get("event"), json.loads(fields["data"])))
    return found


@pytest.mark.parametrize("prefix", ["/v1", ""])
async def test_a_whole_response(client: httpx.AsyncClient, service: FakeTurns, prefix: str) -> None:
    answer = await client.post(f"{prefix}/responses", json={"model": "m", "input": "hi"})
    assert answer.status_code == 200
    body = answer.json()
    assert (body["object"], body["status"], body["model"]) == ("response", "completed", "m")
    assert body["output"][0]["content"][0]["text"] == "You said: hi"
    assert body["usage"]["total_tokens"] == (
        body["usage"]["input_tokens"] + body["usage"]["output_tokens"]
    )
    assert answer.headers["x-ninfer-decision"] == "new_conversation; slot=0"
    assert answer.headers["x-request-id"].startswith("req_")
    assert service.turns[0].closed.is_set()


async def test_a_streamed_response(client: httpx.AsyncClient, service: FakeTurns) -> None:
    answer = await client.post("/v1/responses", json={"input": "hi", "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["x-ninfer-decision"] == "new_conversation; slot=0"
    assert answer.text.endswith("data: [DONE]\n\n")
    events = frames(answer)
    assert [name for name, _ in events] == [payload["type"] for _, payload in events]
    assert (events[0][0], events[-1][0]) == ("response.created", "response.completed")
    assert {payload["response"]["id"] for _, payload in events if "response" in payload} == {
        "resp_1"
    }
    assert service.turns[0].closed.is_set()
    assert not service.turns[0].cancelled


async def test_a_cut_response_is_incomplete(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/responses", json={"input": "a b c", "max_output_tokens": 1})
    body = answer.json()
    assert (body["status"], body["incomplete_details"]) == (
        "incomplete",
        {"reason": "max_output_tokens"},
    )


async def test_chat_whole_and_streamed(client: httpx.AsyncClient) -> None:
    body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    whole = (await client.post("/v1/chat/completions", json=body)).json()
    assert whole["choices"][0]["message"]["content"] == "You said: hi"
    assert whole["choices"][0]["finish_reason"] == "stop"
    answer = await client.post("/v1/chat/completions", json={**body, "stream": True})
    chunks = [chunk for _, chunk in frames(answer)]
    assert all(name is None for name, _ in frames(answer))
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == "You said: hi"
    assert answer.text.endswith("data: [DONE]\n\n")


async def test_reasoning_is_given_back_encrypted_when_asked_for(service: FakeTurns) -> None:
    service = FakeTurns(lambda _: Performance((reasoning("hm"), call("f", "{}"))))
    async with client_of(service) as client:
        body = {"input": "x", "include": ["reasoning.encrypted_content"]}
        asked = (await client.post("/v1/responses", json=body)).json()["output"]
        plain = (await client.post("/v1/responses", json={"input": "x"})).json()["output"]
    assert asked[0]["encrypted_content"] == asked[0]["id"]
    assert "encrypted_content" not in plain[0]


async def test_stored_responses(client: httpx.AsyncClient) -> None:
    created = (await client.post("/v1/responses", json={"input": "hi"})).json()
    path = f"/v1/responses/{created['id']}"
    assert (await client.get(path)).json() == created
    items = (await client.get(f"{path}/input_items", params={"limit": 3, "order": "asc"})).json()
    assert (items["object"], items["first_id"], items["last_id"], items["has_more"]) == (
        "list",
        "asc_0",
        "asc_2",
        True,
    )
    assert len((await client.get(f"{path}/input_items")).json()["data"]) == 20
    deleted = await client.delete(path)
    assert deleted.json() == {"id": created["id"], "object": "response", "deleted": True}
    for answer in (
        await client.get(path),
        await client.delete(path),
        await client.get(f"{path}/input_items"),
    ):
        check_error(answer, 404, "not_found", "response_id")


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=101", "limit=-1", "limit=x", f"limit={'9' * 99}"]
)
async def test_page_limits(client: httpx.AsyncClient, query: str) -> None:
    check_error(
        await client.get(f"/v1/responses/r/input_items?{query}"), 400, "invalid_request", "limit"
    )
    check_error(
        await client.get("/v1/responses/r/input_items?order=up"), 400, "invalid_request", "order"
    )


async def test_counting_tokens_runs_nothing(client: httpx.AsyncClient, service: FakeTurns) -> None:
    answer = await client.post("/v1/responses/input_tokens", json={"input": "one two three"})
    assert answer.json() == {"object": "response.input_tokens", "input_tokens": 6}
    assert service.turns == []


async def test_models(client: httpx.AsyncClient) -> None:
    listed = (await client.get("/v1/models")).json()
    assert listed["data"][0]["id"] == "demo"
    assert (await client.get("/v1/models/demo")).json() == listed["data"][0]
    check_error(await client.get("/v1/models/a/b"), 404, "model_not_found", "model")


async def test_health_tells_the_truth(client: httpx.AsyncClient, service: FakeTurns) -> None:
    assert (await client.get("/health")).status_code == 200
    service.healthy = False
    answer = await client.get("/health")
    assert (answer.status_code, answer.json()["status"]) == (503, "starting")


async def test_requests_and_errors_are_counted(service: FakeTurns) -> None:
    async with client_of(service) as client:
        await client.post("/v1/responses", json={"input": "hi"})
        await client.post("/v1/responses", json={"input": 5})
        await client.get("/nowhere")
        page = (await client.get("/metrics")).text
    assert 'ninfer_http_requests_total{route="/v1/responses",status="200"} 1.0' in page
    assert 'ninfer_http_requests_total{route="/v1/responses",status="400"} 1.0' in page
    assert 'ninfer_http_requests_total{route="unmatched",status="404"} 1.0' in page
    assert 'ninfer_errors_total{code="invalid_request"} 1.0' in page


async def test_warnings_go_into_a_header(client: httpx.AsyncClient) -> None:
    body = {"input": "x", "späť\r\nx: y": 1}
    answer = await client.post("/v1/responses", json=body)
    assert answer.headers["x-ninfer-warnings"] == "sp\\xe4\\u0165  x: y: unknown field, ignored"


async def test_unknown_paths_and_methods(client: httpx.AsyncClient) -> None:
    check_error(await client.get("/v2/responses"), 404, "not_found")
    check_error(await client.post("/v1/embeddings", json={}), 404, "not_found")
    wrong = await client.put("/v1/responses", json={})
    check_error(wrong, 405, "method_not_allowed")
    assert wrong.headers["allow"] == "POST"


async def test_an_unknown_parent_is_exactly_what_agents_look_for(
    client: httpx.AsyncClient, service: FakeTurns
) -> None:
    service.error = PreviousResponseNotFound()
    for stream in (False, True):
        body = {"input": "x", "previous_response_id": "resp_gone", "stream": stream}
        answer = await client.post("/v1/responses", json=body)
        assert answer.status_code == 400
        assert answer.json() == {
            "error": {
                "message": "Previous response with id not found.",
                "type": "invalid_request_error",
                "param": "previous_response_id",
                "code": "previous_response_not_found",
            }
        }


async def test_a_full_queue_says_when_to_come_back(
    client: httpx.AsyncClient, service: FakeTurns
) -> None:
    service.error = overloaded()
    answer = await client.post("/v1/responses", json={"input": "x", "stream": True})
    check_error(answer, 429, "queue_full")
    assert answer.headers["retry-after"] == "2"


async def test_a_fault_before_the_answer_is_a_500_in_the_shape(
    client: httpx.AsyncClient, service: FakeTurns, caplog: pytest.LogCaptureFixture
) -> None:
    service.error = ZeroDivisionError("secret detail")
    answer = await client.post("/v1/responses", json={"input": "x"})
    check_error(answer, 500, "server_error")
    assert "secret" not in answer.text
    assert answer.headers["x-request-id"] in answer.json()["error"]["message"]
    assert answer.headers["x-request-id"] in caplog.text
    assert "secret detail" in caplog.text


async def test_a_failing_engine_ends_the_answer_properly(service: FakeTurns) -> None:
    service = FakeTurns(lambda _: Performance((text("half "), text("way")), fail_after=1))
    async with client_of(service) as client:
        check_error(await client.post("/v1/responses", json={"input": "x"}), 500, "engine_fault")
        streamed = await client.post("/v1/responses", json={"input": "x", "stream": True})
        body = {"messages": [{"role": "user", "content": "x"}], "stream": True}
        chat = await client.post("/v1/chat/completions", json=body)
    kinds = [name for name, _ in frames(streamed)]
    assert kinds[-2:] == ["error", "response.failed"]
    assert streamed.text.endswith("data: [DONE]\n\n")
    assert frames(chat)[-1][1]["error"]["code"] == "engine_fault"


async def test_a_crash_in_mid_stream_still_ends_the_stream(
    client: httpx.AsyncClient, service: FakeTurns, caplog: pytest.LogCaptureFixture
) -> None:
    service.crash = ZeroDivisionError("secret detail")
    answer = await client.post("/v1/responses", json={"input": "x", "stream": True})
    events = frames(answer)
    assert [name for name, _ in events][-2:] == ["error", "response.failed"]
    assert [payload["sequence_number"] for _, payload in events] == list(range(len(events)))
    failed = events[-1][1]["response"]
    assert (failed["id"], failed["status"], failed["error"]["code"]) == (
        "resp_1",
        "failed",
        "engine_fault",
    )
    assert "secret" not in answer.text
    assert "secret detail" in caplog.text
    assert service.turns[0].closed.is_set()


async def test_api_keys(service: FakeTurns) -> None:
    settings = replace(SETTINGS, api_keys=("k1", "k2"))
    async with client_of(service, settings) as client:
        for headers in ({}, {"authorization": "Bearer no"}, {"authorization": "Basic k1"}):
            for path in ("/v1/responses/x", "/v1/models", "/v1/models/demo"):
                answer = await client.get(path, headers=headers)
                check_error(answer, 401, "invalid_api_key")
            answer = await client.post("/v1/responses", headers=headers, content=b"{")
            check_error(answer, 401, "invalid_api_key")
        body = {"input": "x"}
        for headers in (
            {"authorization": "Bearer k1"},
            {"x-api-key": "k1"},
            {"authorization": "bearer  k2 "},
        ):
            assert (await client.post("/v1/responses", json=body, headers=headers)).is_success
        assert (await client.get("/health")).is_success
    tenants = [turn.tenant for turn in service.asked]
    assert tenants[0] == tenants[1] != tenants[2]
    assert "k1" not in tenants[0]


async def test_tenants_without_configured_keys(
    client: httpx.AsyncClient, service: FakeTurns
) -> None:
    for key in ("", "a", "b"):
        headers = {"authorization": f"Bearer {key}"} if key else {}
        await client.post("/v1/responses", json={"input": "x"}, headers=headers)
    first, second, third = (turn.tenant for turn in service.asked)
    assert first == "anonymous"
    assert len({first, second, third}) == 3
    answer = await client.get("/v1/responses/resp_2", headers={"authorization": "Bearer b"})
    assert answer.status_code == 404


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b'{"input": "\xff"}', "invalid_json"),
        (b'{"input": "x", "temperature": NaN}', "invalid_json"),
        (b'{"input": ' + b"[" * 200 + b"]" * 200 + b"}", "invalid_request"),
        (b"[]", "invalid_request"),
        (b'{"input": "x", "max_output_tokens": -5}', "invalid_request"),
    ],
)
async def test_bad_bodies(client: httpx.AsyncClient, body: bytes, code: str) -> None:
    for path in ("/v1/responses", "/v1/responses/input_tokens", "/v1/chat/completions"):
        answer = await client.post(path, content=body)
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == code


async def test_half_an_emoji_is_repaired(client: httpx.AsyncClient, service: FakeTurns) -> None:
    answer = await client.post("/v1/responses", content=rb'{"input": "cut \ud83d"}')
    assert answer.json()["output"][0]["content"][0]["text"] == "You said: cut �"
