"""The whole product as a user starts it: `ninfer-proxy serve` with the embedded engine, in a process group of its own. Knows no test."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai

ADMIN_TOKEN = "admin-of-the-test"
START_PATIENCE_S = 90.0
STOP_PATIENCE_S = 40.0


class RealService:
    """One server on 127.0.0.1; `start` and `kill` may alternate, the data directory stays."""

    def __init__(self, data_dir: Path, *flags: str, **env: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.data_dir = data_dir
        self.flags = flags
        self.env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("NINFER_PROXY_")
        } | env
        self.process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns when the engine is ready."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Starts the process and waits for nothing."""
        self.log = self.data_dir.with_suffix(".log")
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [
                    str(Path(sys.executable).with_name("ninfer-proxy")),
                    "serve",
                    f"--port={self.port}",
                    f"--data-dir={self.data_dir}",
                    f"--admin-token={ADMIN_TOKEN}",
                    *self.flags,
                ],
                stdout=log,
                stderr=log,
                env=self.env | {"NINFER_PROXY_ENGINE_THREADS": "1"},
                text=True,
                start_new_session=True,
            )

    def wait_ready(self) -> None:
        deadline = time.monotonic() + START_PATIENCE_S
        while time.monotonic() < deadline:
            assert self.process is not None
            assert self.process.poll() is None, self.log.read_text()
            if self.health().get("status") == "ok":
                return
            time.sleep(0.1)
        raise AssertionError(f"not ready in time:\n{self.log.read_text()}")

    def health(self) -> dict[str, Any]:
        try:
            answer = httpx.get(f"{self.url}/health", timeout=5)
        except httpx.TransportError:
            return {}
        body: dict[str, Any] = answer.json()
        return body

    def kill(self) -> None:
        """SIGKILL to the proxy; the engine must notice by itself."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                code = self.process.wait(STOP_PATIENCE_S)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                raise
            assert code == 0, f"it was stopped and ended with {code}"
            # The log is folded into the database as the last act of an orderly end.
            assert not any(log.stat().st_size for log in self.data_dir.glob("*-wal"))

    def engine_pid(self) -> int:
        """The engine process, found as the proxy's child."""
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        for pid in children.split():
            if b"engine.serve" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return int(pid)
        raise AssertionError("no engine process")

    def client(self, key: str = "sk-test", **options: Any) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, **options)

    def admin(self, *command: str) -> dict[str, Any]:
        """A command of the CLI with --json."""
        done = subprocess.run(
            [str(Path(sys.executable).with_name("ninfer-proxy")), *command, "--json"],
            capture_output=True,
            text=True,
            timeout=60,
            env=self.env | {"NINFER_PROXY_URL": self.url, "NINFER_PROXY_ADMIN_TOKEN": ADMIN_TOKEN},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def slots(self, conversation: str | None = None) -> list[dict[str, Any]]:
        slots: list[dict[str, Any]] = self.admin("slots")["slots"]
        return [each for each in slots if conversation in (None, each["conversation"])]


@contextmanager
def real_service(data_dir: Path, *flags: str, **env: str) -> Iterator[RealService]:
    service = RealService(data_dir, *flags, **env)
    service.start()
    try:
        yield service
    finally:
        service.stop()
