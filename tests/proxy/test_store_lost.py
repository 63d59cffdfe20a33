"""The database goes, is swapped, fills up, closes or breaks while the service runs: a clear 503, no hang, and the service lives on."""

import asyncio
import json
import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from in_process import ADMIN, InProcess, decision, in_process, user
from sqlalchemy import Connection, event

from engine.api import ContinuationId, Delta, Generate
from ninfer_proxy.backends.scripted import Performance, text
from ninfer_proxy.errors import StoreDamaged, StoreFull, StoreUnavailable
from ninfer_proxy.metrics import Metrics
from ninfer_proxy.planning.policy import Policy
from ninfer_proxy.store import Store
from ninfer_proxy.store.datadir import DATABASE_NAME
from ninfer_proxy.turn.in_flight import InFlight
from ninfer_proxy.turn.remembered import LastTurns
from ninfer_proxy.turn.settle import Settler
from ninfer_proxy.types import ConversationId

KEY = {"authorization": "Bearer k"}
PATIENCE_S = 20.0


@pytest.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[InProcess]:
    """Its directory is deleted in the midst of an answer to "delete"."""

    def deltas(words: str) -> Iterator[Delta]:
        yield text("one ")
        if words == "delete":
            shutil.rmtree(tmp_path / "data")
        yield text("two ")

    def script(request: Generate) -> Performance:
        answer: Any = deltas(request.prompt.messages[-1].text)
        return Performance(answer)

    async with in_process(tmp_path / "data", script) as running:
        yield running


def error_of(response: httpx.Response, code: str) -> str:
    """The message, when it is an error in OpenAI's shape that names the database."""
    assert response.status_code == 503
    error: dict[str, Any] = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert (error["type"], error["param"], error["code"]) == ("server_error", None, code)
    assert DATABASE_NAME in error["message"]
    assert int(response.headers["retry-after"]) > 0
    return str(error["message"])


async def said(proxy: InProcess, words: str = "hello") -> httpx.Response:
    response = await proxy.create(input=[user(words)])
    assert response.status_code == 200, response.text
    return response


async def pages(proxy: InProcess) -> int:
    def count(connection: Connection) -> int:
        found: int = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        return found

    return await proxy.store._database.read(count)


@contextmanager
def pragma(proxy: InProcess, setting: str, afterwards: str) -> Iterator[None]:
    """The setting holds for each transaction, whichever connection it runs on."""
    now = setting

    def apply(connection: Any, *_: object) -> None:
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA {now}")
        cursor.close()

    event.listen(proxy.store._database._engine, "checkout", apply)
    yield
    now = afterwards


async def test_a_deleted_directory_is_an_error_and_stays_deleted(
    proxy: InProcess, tmp_path: Path
) -> None:
    made = (await said(proxy)).json()["id"]
    shutil.rmtree(tmp_path / "data")
    answers = [
        await proxy.create(input=[user("more")]),
        await proxy.create(input=[user("more")], stream=True),
        await proxy.create(input=[user("more")], previous_response_id=made),
        await proxy.http.post("/v1/chat/completions", json={"messages": [user("more")]}),
        await proxy.http.post("/v1/responses/input_tokens", json={"input": "more"}),
        await proxy.http.get(f"/v1/responses/{made}", headers=KEY),
        await proxy.http.delete(f"/v1/responses/{made}", headers=KEY),
        await proxy.http.get(f"/v1/responses/{made}/input_items", headers=KEY),
        await proxy.http.get("/admin/slots", headers=ADMIN),
    ]
    for answer in answers:
        message = error_of(answer, "store_unavailable")
        assert "is gone" in message
        assert "restart the service" in message
    assert not (tmp_path / "data").exists()
    assert (await proxy.http.get("/v1/models")).status_code == 200


async def test_what_was_moved_away_can_be_put_back(proxy: InProcess, tmp_path: Path) -> None:
    made = (await said(proxy)).json()["id"]
    (tmp_path / "data").rename(tmp_path / "elsewhere")
    error_of(await proxy.create(input="more", previous_response_id=made), "store_unavailable")
    (tmp_path / "elsewhere").rename(tmp_path / "data")
    answer = await proxy.create(input="more", previous_response_id=made)
    assert answer.status_code == 200


async def test_another_file_in_its_place_is_left_alone(proxy: InProcess, tmp_path: Path) -> None:
    await said(proxy)
    path = tmp_path / "data" / DATABASE_NAME
    path.unlink()
    path.write_bytes(b"another")
    message = error_of(await proxy.create(input=[user("more")]), "store_unavailable")
    assert "Another file" in message
    assert path.read_bytes() == b"another"


async def streamed(proxy: InProcess, words: str) -> list[dict[str, Any]]:
    """The events of a streamed answer, which must come to its end."""
    async with asyncio.timeout(PATIENCE_S):
        answer = await proxy.create(input=[user(words)], stream=True)
    assert answer.status_code == 200, answer.text
    *events, last = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
    assert last == "[DONE]"
    return [json.loads(each) for each in events]


async def test_a_stream_that_runs_while_the_directory_goes_fails(proxy: InProcess) -> None:
    events = await streamed(proxy, "delete")
    kinds = [each["type"] for each in events]
    assert kinds.count("response.output_text.delta") == 2
    assert kinds[-2:] == ["error", "response.failed"]
    assert "response.completed" not in kinds
    failed = events[-1]["response"]
    assert failed["status"] == "failed"
    assert "is gone" in failed["error"]["message"]


async def test_an_answer_that_is_made_while_the_directory_goes_fails(proxy: InProcess) -> None:
    async with asyncio.timeout(PATIENCE_S):
        answer = await proxy.create(input=[user("delete")])
    assert "is gone" in error_of(answer, "store_unavailable")


async def test_a_full_disk_ends_a_stream_and_passes(proxy: InProcess) -> None:
    await said(proxy)
    large = "x" * 100_000
    with pragma(proxy, f"max_page_count = {await pages(proxy)}", "max_page_count = 1000000"):
        failed = (await streamed(proxy, large))[-1]
        assert failed["type"] == "response.failed"
        assert "is full" in failed["response"]["error"]["message"]
        message = error_of(await proxy.create(input=[user(large)]), "store_full")
        assert "Free some space" in message
        assert isinstance(await proxy.store.trouble(), StoreFull)
    await said(proxy, large)
    assert await proxy.store.trouble() is None


async def test_a_readonly_database_is_told_and_passes(proxy: InProcess) -> None:
    await said(proxy)
    with pragma(proxy, "query_only = ON", "query_only = OFF"):
        answer = await proxy.create(input=[user("no")])
        assert "read-only" in error_of(answer, "store_unavailable")
    await said(proxy)


async def test_a_database_held_by_another_is_told_and_passes(tmp_path: Path) -> None:
    async with in_process(tmp_path, store__busy_timeout_s=0.1) as proxy:
        await said(proxy)
        other = sqlite3.connect(tmp_path / DATABASE_NAME, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        error_of(await proxy.create(input=[user("no")]), "store_busy")
        other.execute("ROLLBACK")
        other.close()
        await said(proxy)


async def test_damage_that_is_met_is_told_as_damage(proxy: InProcess, tmp_path: Path) -> None:
    await said(proxy)
    await proxy.store._database.shrink_log()
    proxy.store._database._engine.dispose()  # what is read from now on comes from the file
    path = tmp_path / "data" / DATABASE_NAME
    path.write_bytes(b"\xa5" * path.stat().st_size)
    message = error_of(await proxy.create(input=[user("more")]), "store_damaged")
    assert "Restart the service" in message
    trouble = await proxy.store.trouble()
    assert isinstance(trouble, StoreDamaged)


async def test_drops_are_written_when_the_store_is_back(
    proxy: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = [decision(await said(proxy, words)) for words in ("one", "two")]
    settler = Settler(
        proxy.store,
        proxy.backend,
        Policy(),
        InFlight(),
        LastTurns(),
        Metrics(),
        clock=lambda: 1000.0,
    )

    async def full(_: object) -> None:
        raise StoreFull("full")

    with monkeypatch.context() as patch:
        patch.setattr(proxy.store, "record_drops", full)
        for each in told:
            proxy.backend.drop(ContinuationId(each["conversation"]), "no reason")
            with pytest.raises(StoreFull):
                await settler.record_drops()
    await settler.record_drops()
    await settler.record_drops()
    for each in told:
        assert len(await proxy.store.recent_drops(ConversationId(each["conversation"]), 9)) == 1


async def test_trouble_is_none_until_there_is_some(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "data", clock=lambda: 1000.0)
    assert await store.trouble() is None
    (tmp_path / "data" / DATABASE_NAME).rename(tmp_path / "moved")
    trouble = await store.trouble()
    assert isinstance(trouble, StoreUnavailable)
    assert "is gone" in trouble.message
    (tmp_path / "moved").rename(tmp_path / "data" / DATABASE_NAME)
    assert await store.trouble() is None
    await store.close()
