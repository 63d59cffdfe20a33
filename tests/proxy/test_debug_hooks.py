"""Debug hooks: what they do when asked for, and that nothing of them is there when not."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.api import Generate
from ninfer_proxy.admin.debug import OUTPUT_HEADER
from ninfer_proxy.backends.hooked import KEPT_PROMPTS, HookedBackend, pieces
from ninfer_proxy.backends.scripted import (
    Performance,
    ScriptedBackend,
    echo,
    prompt_tokens,
    text,
)
from ninfer_proxy.errors import InvalidRequest
from tests.proxy.in_process import ADMIN, InProcess, in_process

HELLO: dict[str, Any] = {"input": "Hello there."}


async def dump(proxy: InProcess, response: str, **headers: str) -> httpx.Response:
    return await proxy.http.get(f"/admin/debug/prompts/{response}", headers=headers or ADMIN)


async def drop_caches(proxy: InProcess, **headers: str) -> httpx.Response:
    return await proxy.http.post("/admin/debug/drop-caches", headers=headers or ADMIN)


async def test_a_prompt_can_be_read_as_tokens(tmp_path: Path) -> None:
    async with in_process(tmp_path, server__debug_hooks=True) as proxy:
        response = (await proxy.create(**HELLO)).json()["id"]
        fed, _ = prompt_tokens(proxy.backend.requests[0].prompt)
        assert (await dump(proxy, response)).json() == {"tokens": list(fed)}
        assert (await dump(proxy, "resp_unknown")).status_code == 404


async def test_all_state_can_be_dropped(tmp_path: Path) -> None:
    async with in_process(tmp_path, server__debug_hooks=True) as proxy:
        first = (await proxy.create(**HELLO)).json()
        again = {"input": "More.", "previous_response_id": first["id"]}
        warm = (await proxy.create(**again)).json()["usage"]["input_tokens_details"]
        assert warm["cached_tokens"] > 0
        assert (await drop_caches(proxy)).json() == {"dropped": 1}
        assert (await proxy.backend.snapshot()).continuations == ()
        cold = (await proxy.create(**again)).json()["usage"]["input_tokens_details"]
        assert cold["cached_tokens"] == 0


async def test_a_dictation_reaches_the_engine_with_its_own_request_only(tmp_path: Path) -> None:
    def slow(request: Generate) -> Performance:
        return Performance((text("ok"),), queue_s=0.05)

    async with in_process(tmp_path, slow, server__debug_hooks=True) as proxy:
        said = '["a\\n", {"hex": "f09f"}, {"fault": "now"}]'
        await asyncio.gather(
            proxy.create(input="dictated", headers={OUTPUT_HEADER: said}),
            proxy.create(input="free"),
        )
        by_text = {each.prompt.messages[-1].text: each.dictation for each in proxy.backend.requests}
        assert by_text == {"dictated": ("a\n", b"\xf0\x9f", None), "free": None}


@pytest.mark.parametrize("wrong", ["words", "[1]", '[{"hex": "f"}]', '[{"sex": "ff"}]', "3"])
async def test_a_dictation_that_cannot_be_read_is_the_clients_error(
    tmp_path: Path, wrong: str
) -> None:
    with pytest.raises(InvalidRequest, match="dictated"):
        pieces(wrong)
    async with in_process(tmp_path, server__debug_hooks=True) as proxy:
        answer = await proxy.create(**HELLO, headers={OUTPUT_HEADER: wrong})
        assert answer.status_code == 400
        assert proxy.backend.requests == []


async def test_without_the_flag_there_are_no_hooks(tmp_path: Path) -> None:
    async with in_process(tmp_path) as proxy:
        said = {OUTPUT_HEADER: '["a"]'}
        response = (await proxy.create(**HELLO, headers=said)).json()["id"]
        (request,) = proxy.backend.requests
        assert (request.dictation, request.echo_tokens) == (None, False)
        assert (await dump(proxy, response)).status_code == 404
        assert (await drop_caches(proxy)).status_code == 404
        assert len((await proxy.backend.snapshot()).continuations) == 1


@pytest.mark.parametrize("hook", [drop_caches, lambda proxy, **key: dump(proxy, "resp_1", **key)])
async def test_hooks_want_the_admin_token(tmp_path: Path, hook: Callable[..., Any]) -> None:
    async with in_process(tmp_path, server__debug_hooks=True) as proxy:
        answer = await hook(proxy, authorization="Bearer k")
        assert answer.status_code == 401


async def test_only_the_latest_prompts_are_kept(tmp_path: Path) -> None:
    hooked = HookedBackend(ScriptedBackend(echo))
    async with in_process(tmp_path) as proxy:
        await proxy.create(**HELLO)
        (request,) = proxy.backend.requests
    names = [f"r{number}" for number in range(KEPT_PROMPTS + 1)]
    for name in names:
        async for _ in hooked.generate(replace(request, request_id=name)):
            pass
    kept = [name for name in names if hooked.prompt(name) is not None]
    assert kept == names[1:]
