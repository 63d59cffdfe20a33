"""The command line against a live server: every command, both outputs, and what it says when something is wrong."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import pytest_asyncio
from live_server import serving
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from storing import Chat, Clock, checkpoint
from typer.testing import CliRunner

from ninfer_proxy import cli
from ninfer_proxy.admin.client import AdminError
from ninfer_proxy.admin.routes import admin_routes
from ninfer_proxy.admin.service import Admin
from ninfer_proxy.backends.scripted import ScriptedBackend
from ninfer_proxy.config import ConfigError
from ninfer_proxy.errors import StartRefused
from ninfer_proxy.http.errors import error_handlers
from ninfer_proxy.metrics import Metrics
from ninfer_proxy.planning.policy import Policy
from ninfer_proxy.store import Store
from ninfer_proxy.store.datadir import DATABASE_NAME, kept_secret

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch, tmp_path):
    """Whatever the person running the tests has set, the commands see only what a test says."""
    for name in [name for name in os.environ if name.startswith("NINFER_PROXY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))


@pytest_asyncio.fixture
async def url(tmp_path, monkeypatch):
    """A live admin API; the environment leads there and to its data directory, not to its token."""
    data_dir = tmp_path / "data"
    store = await Store.open(data_dir, clock=Clock())
    chat = Chat()
    await store.commit_turn(chat.turn("a", slot=2, checkpoints=(checkpoint(1),)))
    await store.commit_turn(chat.turn("b", slot=2))
    backend = ScriptedBackend()
    admin = Admin(store, backend, Policy(), lambda slots: tuple(slots), clock=Clock())
    routes = admin_routes(admin, kept_secret(data_dir, "admin-token"))
    async with serving(
        Starlette(routes=routes, exception_handlers=error_handlers(Metrics()))
    ) as port:
        monkeypatch.setenv("NINFER_PROXY_URL", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("NINFER_PROXY_DATA_DIR", str(data_dir))
        yield f"http://127.0.0.1:{port}"
    await store.close()


async def ran(*arguments):
    """Standard output of a command; its refusal, if any, is raised."""
    result = await asyncio.to_thread(CliRunner().invoke, cli.app, [*arguments])
    if isinstance(result.exception, StartRefused):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.usefixtures("url")
async def test_slots():
    assert "conv-1" in await ran("slots")
    listed = json.loads(await ran("slots", "--json"))
    assert [slot["slot"] for slot in listed["slots"]] == [2]


@pytest.mark.usefixtures("url")
async def test_show_and_explain():
    assert "4 stored" in await ran("show", "conv-1")
    assert json.loads(await ran("show", "2", "--json"))["conversation"] == "conv-1"
    assert "said for a person" in await ran("explain", "resp_1")
    assert json.loads(await ran("explain", "resp_1", "--json"))["reason"] == "cache_hit"


@pytest.mark.usefixtures("url")
async def test_pin_unpin_evict():
    assert "conv-1 in slot 2 is pinned until" in await ran("pin", "conv-1", "--minutes", "90")
    pinned = json.loads(await ran("pin", "2", "--json"))
    assert pinned["pinned_until"] == 1_000_000 + Policy().pin_s
    assert await ran("unpin", "2") == "conv-1 in slot 2 is no longer pinned.\n"
    evicted = json.loads(await ran("evict", "conv-1", "--json"))
    assert evicted["evicted"]["slot"] == 2
    assert "No slot is in use" in await ran("slots")


@pytest.mark.usefixtures("url")
async def test_top_once():
    assert "engine ready" in await ran("top", "--once")
    frame = json.loads(await ran("top", "--json"))
    assert frame["status"]["engine"]["state"] == "ready"
    assert len(frame["slots"]) == 1


@pytest.mark.usefixtures("url")
async def test_the_server_says_no():
    with pytest.raises(AdminError, match="conv-9"):
        await ran("show", "conv-9")
    with pytest.raises(AdminError, match="minutes must be above 0"):
        await ran("pin", "conv-1", "--minutes", "0")


async def test_a_proxy_for_the_world_is_not_asked(url, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    await ran("slots")


async def test_a_wrong_token(url, monkeypatch):
    monkeypatch.setenv("NINFER_PROXY_ADMIN_TOKEN", "wrong")
    with pytest.raises(AdminError, match=f"{url} refused the admin token. Set NINFER_PROXY_ADMIN_"):
        await ran("slots")


@pytest.mark.usefixtures("url")
async def test_no_token_at_hand(monkeypatch, tmp_path):
    monkeypatch.setenv("NINFER_PROXY_DATA_DIR", str(tmp_path / "elsewhere"))
    with pytest.raises(AdminError, match="elsewhere/admin-token does not exist"):
        await ran("slots")


async def test_no_server_at_all(monkeypatch):
    monkeypatch.setenv("NINFER_PROXY_ADMIN_TOKEN", "x")
    monkeypatch.setenv("NINFER_PROXY_URL", "http://127.0.0.1:9")
    with pytest.raises(
        AdminError, match=r"No server answers at http://127.0.0.1:9 .*`ninfer-proxy serve`"
    ):
        await ran("slots")


async def test_some_other_server(monkeypatch):
    async def hello(_request):
        return PlainTextResponse("hello", 404)

    monkeypatch.setenv("NINFER_PROXY_ADMIN_TOKEN", "x")
    async with serving(Starlette(routes=[Route("/admin/slots", hello)])) as port:
        monkeypatch.setenv("NINFER_PROXY_URL", f"http://127.0.0.1:{port}")
        with pytest.raises(AdminError, match="not as a ninfer-proxy would"):
            await ran("slots")


async def test_db_upgrade(tmp_path):
    said = await ran("db", "upgrade", "--data-dir", str(tmp_path / "new"))
    assert "went from schema none to 0003" in said
    assert (tmp_path / "new" / DATABASE_NAME).exists()
    again = await ran("db", "upgrade", "--data-dir", str(tmp_path / "new"))
    assert "is up to date (schema 0003)" in again


async def test_db_upgrade_beside_a_running_server(tmp_path):
    store = await Store.open(tmp_path, clock=Clock())
    with pytest.raises(StartRefused, match="in use by process"):
        await ran("db", "upgrade", "--data-dir", str(tmp_path))
    await store.close()


async def test_serve_hands_its_flags_over(monkeypatch, tmp_path):
    started = []
    monkeypatch.setattr("ninfer_proxy.service.serve", started.append)
    monkeypatch.setenv("NINFER_PROXY_PORT", "1")
    await ran(
        "serve", "--host", "0.0.0.0", "--port", "2", "--data-dir", str(tmp_path), "--model", "m",
        "--admin-token", "t", "--api-key", "a", "--api-key", "b", "--slots", "12",
    )  # fmt: skip
    (config,) = started
    assert (config.server.host, config.server.port, config.data_dir) == ("0.0.0.0", 2, tmp_path)
    assert (config.model.path, config.auth.admin_token) == ("m", "t")
    assert (config.auth.api_keys, config.slots.count) == (("a", "b"), 12)


async def test_serve_refuses_what_it_does_not_know(tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text("[server]\nprot = 1\n")
    with pytest.raises(ConfigError, match=r"Did you mean server\.port"):
        await ran("serve", "--config", str(path))


def test_refusals_are_one_sentence_and_exit_1(tmp_path):
    missing = tmp_path / "no.toml"
    code = "from ninfer_proxy.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "db", "upgrade", "--config", str(missing)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    said = f"ninfer-proxy: The config file {missing} can't be read: No such file or directory.\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)


def test_help_needs_none_of_the_heavy_parts():
    heavy = ("torch", "sqlalchemy", "alembic", "starlette", "uvicorn", "httpx", "pydantic", "rich")
    code = f"import ninfer_proxy.cli, sys; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout == "[]\n"


async def test_every_command_has_help():
    for command in (
        "serve",
        "slots",
        "show",
        "explain",
        "pin",
        "unpin",
        "evict",
        "top",
        "db upgrade",
    ):
        text = await ran(*command.split(), "--help")
        assert "Usage" in text
        assert len(text.split()) > 10
