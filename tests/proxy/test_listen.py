"""Where the service listens: free ports, busy ones, addresses of both families, and what the greeting says of it."""

import asyncio
import io
import re
import socket
from pathlib import Path

import httpx
import pytest
from rich.console import Console

from engine.api import Ready
from ninfer_proxy import service
from ninfer_proxy.backends.scripted import ScriptedBackend
from ninfer_proxy.config import load
from ninfer_proxy.errors import StartRefused
from ninfer_proxy.listen import base_url, listening
from ninfer_proxy.service import HttpServer, run


def test_port_0_takes_a_free_one() -> None:
    with listening("127.0.0.1", 0) as one, listening("127.0.0.1", 0) as other:
        assert 0 != one.getsockname()[1] != other.getsockname()[1] != 0


async def test_small_answers_are_not_held_back() -> None:
    """Nagle's algorithm waits for the acknowledgement of what was sent before, which clients put off for 40 ms."""
    accepted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        accepted.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0)
        writer.close()

    with listening("127.0.0.1", 0) as opened:
        async with await asyncio.start_server(serve, sock=opened):
            _, writer = await asyncio.open_connection(*opened.getsockname())
            assert await accepted
            writer.close()


@pytest.mark.parametrize("host", ["256.0.0.1", "no such host", "203.0.113.9"])
def test_an_address_that_is_not_ours_is_refused(host: str) -> None:
    with pytest.raises(StartRefused, match=f"Can't listen on {host} port 0: "):
        listening(host, 0)


async def test_a_busy_port_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    with listening("127.0.0.1", 0) as held:
        port = held.getsockname()[1]
        config = load(None, {}, {"server.port": port, "server.data_dir": str(tmp_path / "new")})
        with pytest.raises(StartRefused, match=f"port {port}: Address already in use"):
            await run(config)
    assert not (tmp_path / "new").exists()


def test_urls() -> None:
    assert base_url("127.0.0.1", 8088) == "http://127.0.0.1:8088"
    assert httpx.URL(base_url("::1", 9)).host == "::1"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_the_greeting_leads_to_the_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, host: str
) -> None:
    """The whole of `run` but for the engine process, on a free port; the greeting's URL is asked, then the server stopped."""
    if host == "::1" and not _has_ipv6():
        pytest.skip("this machine has no IPv6")
    said = io.StringIO()
    answers: list[httpx.Response] = []

    class Asked(HttpServer):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            (url,) = re.findall(r"Serving .* at (\S+)", said.getvalue())
            async with httpx.AsyncClient(trust_env=False, verify=False) as client:
                answers.append(await client.get(f"{url}/models"))
            self.should_exit = True

    class Engine(ScriptedBackend):
        async def start(self) -> None:
            ready = self.status().ready
            assert isinstance(ready, Ready)
            self.greet(ready)

        async def stop(self, grace_s: float) -> None:
            assert grace_s > 0

    def engine(*_: object, **callbacks: object) -> Engine:
        made = Engine()
        made.greet = callbacks["on_ready"]  # type: ignore[attr-defined]
        return made

    monkeypatch.setattr(service, "EmbeddedBackend", engine)
    monkeypatch.setattr(service, "HttpServer", Asked)
    monkeypatch.setattr(service, "Console", lambda **_: Console(file=said, width=200))
    await run(
        load(None, {}, {"server.host": host, "server.port": 0, "server.data_dir": str(tmp_path)})
    )
    assert answers[0].status_code == 200
    assert ":0/" not in said.getvalue()


def _has_ipv6() -> bool:
    try:
        listening("::1", 0).close()
    except StartRefused:
        return False
    return True
