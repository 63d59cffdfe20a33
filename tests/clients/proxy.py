"""The proxy under test, from outside: its process, its command line, a cold copy of a request. Imports none of its code."""

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

import httpx

from tests.clients.processes import Service, free_port, run
from tests.clients.recorder import EventReader, Exchange

START_TIMEOUT_S = 300  # some 10 s on a free machine
COLD_OUTPUT_TOKENS = 16  # enough to see the first one; the prompt is what costs


class ProxyCommandFailed(Exception):
    """A command of the proxy's CLI failed or printed no JSON; the message holds what it printed."""


@dataclass(frozen=True, slots=True)
class Cold:
    """The same request as somebody the proxy has never seen: nothing may be reused."""

    number: int
    prompt: int
    reused: int
    first_token_s: float | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Proxy:
    url: str
    admin_token: str
    program: Path
    home: Path

    def slots(self) -> list[dict[str, Any]]:
        slots: list[dict[str, Any]] = self._json("slots", "--json")["slots"]
        return slots

    def explain(self, response_id: str) -> dict[str, Any]:
        return self._json("explain", response_id, "--json")

    def head_tokens(self, body: Mapping[str, Any], system: list[dict[str, Any]]) -> int | None:
        """Tokens of tools + system text, by the proxy's own count; None when it does not count."""
        asked = {
            "model": body.get("model"),
            "instructions": body.get("instructions"),
            "tools": body.get("tools", []),
            "input": [*system, {"type": "message", "role": "user", "content": "."}],
        }
        answer = httpx.post(
            f"{self.url}/v1/responses/input_tokens",
            json=asked,
            headers={"authorization": "Bearer count-only"},
            timeout=120,
        )
        return int(answer.json()["input_tokens"]) if answer.status_code == 200 else None

    def cold(self, exchange: Exchange) -> Cold:
        """Send a recorded request again, whole history in place of its parent, under a key never used before."""
        body = {k: v for k, v in exchange.body.items() if k != "previous_response_id"}
        body |= {"input": exchange.history, "max_output_tokens": COLD_OUTPUT_TOKENS, "stream": True}
        headers = {"authorization": f"Bearer cold-{token_hex(8)}", "accept": "application/json"}
        began, reader = time.monotonic(), EventReader()
        first: float | None = None
        usage: dict[str, Any] = {}
        error: str | None = None
        with httpx.stream(
            "POST", f"{self.url}/v1/responses", json=body, headers=headers, timeout=600
        ) as answer:
            if answer.status_code != 200:
                error = answer.read().decode(errors="replace")[:300]
            for chunk in answer.iter_raw() if error is None else ():
                for event in reader.feed(chunk):
                    kind = str(event.get("type"))
                    if first is None and kind.endswith((".delta", "item.done")):
                        first = time.monotonic() - began
                    usage = (event.get("response") or {}).get("usage") or usage
        return Cold(
            number=exchange.number,
            prompt=int(usage.get("input_tokens", 0)),
            reused=int((usage.get("input_tokens_details") or {}).get("cached_tokens", 0)),
            first_token_s=first,
            error=error,
        )

    def _json(self, *arguments: str) -> dict[str, Any]:
        env = os.environ | {
            "NINFER_PROXY_URL": self.url,
            "NINFER_PROXY_ADMIN_TOKEN": self.admin_token,
        }
        ran = run([str(self.program), *arguments], env=env, cwd=self.home, timeout_s=60)
        try:
            answer = json.loads(ran.stdout) if ran.returncode == 0 else None
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            said = (ran.stderr or ran.stdout)[-1000:]
            raise ProxyCommandFailed(f"{' '.join(arguments)}: code {ran.returncode}: {said}")
        return answer


@contextmanager
def serving(home: Path, log: Path, program: Path | None = None) -> Iterator[Proxy]:
    """A proxy with an empty data directory on a free port, ended with the block."""
    program = program or Path(sys.executable).with_name("ninfer-proxy")
    home.mkdir(parents=True)
    port, token = free_port(), token_hex(16)
    arguments = ["--port", str(port), "--data-dir", str(home / "data"), "--admin-token", token]
    service = Service(
        "ninfer-proxy", [str(program), "serve", *arguments], log=log, env=os.environ, cwd=home
    )
    url = f"http://127.0.0.1:{port}"
    try:
        service.wait_until(lambda: _healthy(url), timeout_s=START_TIMEOUT_S)
        yield Proxy(url=url, admin_token=token, program=program, home=home)
    finally:
        service.stop()


def _healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False
