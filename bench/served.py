"""A whole proxy process over the instant engine, and a client that times what it asks. Knows HTTP; nothing of what is measured.

python -m bench.served DATA_DIR PORT    is that process: the service as it is, except for what it starts as its engine.
"""

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ninfer_proxy import service
from ninfer_proxy.backends import embedded
from ninfer_proxy.config import load

ENGINE = "bench.instant_engine"
START_S, STOP_S = 60.0, 60.0
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Answered:
    """A turn that ended well: `seconds` from the first byte sent to the last byte received, of which the proxy process had a core
    for `ran_s` (all its threads), the decision header, the output items.
    """

    seconds: float
    ran_s: float
    decision: str
    response_id: str
    output: list[dict[str, Any]]

    @property
    def conversation(self) -> str:
        return self.decision.partition("conversation=")[2].partition(";")[0]


class Served:
    """A running proxy and one connection to it, kept open as agents keep theirs."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int) -> None:
        self._process = process
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_S)

    def ask(self, request: Mapping[str, Any], **headers: str) -> Answered:
        """A streamed turn. Raises RuntimeError where it doesn't complete."""
        body = json.dumps({**request, "stream": True}).encode()
        ran = self.ran_s()
        begun = time.perf_counter()
        self._connection.request(
            "POST", "/v1/responses", body, {"content-type": "application/json", **headers}
        )
        answer = self._connection.getresponse()
        text = answer.read()
        seconds = time.perf_counter() - begun
        ran = self.ran_s() - ran
        frames = [line for line in text.split(b"\n") if line.startswith(b"data: {")]
        last = json.loads(frames[-1][6:]) if frames else {"type": text.decode()}
        if last["type"] != "response.completed":
            raise RuntimeError(f"a turn ended with {answer.status} {str(last)[:300]}")
        response = last["response"]
        decision = answer.headers["x-ninfer-decision"]
        return Answered(seconds, ran, decision, response["id"], response["output"])

    def get(self, path: str) -> tuple[int, Any]:
        try:
            self._connection.request("GET", path)
            answer = self._connection.getresponse()
            return answer.status, json.loads(answer.read())
        except ConnectionError:
            self._connection.close()
            raise

    def ran_s(self) -> float:
        """Seconds of a core that the proxy process has had since its start, the engine's not counted."""
        tasks = Path(f"/proc/{self._process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def resident_bytes(self) -> int:
        """Main memory of the proxy process."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024


@contextmanager
def served(data_dir: Path) -> Iterator[Served]:
    """A proxy that is ready; stopped with the context."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    log = data_dir.with_suffix(".log")
    with log.open("ab") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.served", str(data_dir), str(port)],
            stdout=sink,
            stderr=sink,
            cwd=ROOT,
            env=os.environ,
        )
    try:
        proxy = Served(process, port)
        _wait_ready(proxy, process, log)
        yield proxy
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise


def _wait_ready(proxy: Served, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if proxy.get("/health")[1]["status"] == "ok":
                return
        except ConnectionError:
            pass
        time.sleep(0.05)
    raise RuntimeError(f"the proxy didn't start: {log.read_text()[-2000:]}")


def main() -> None:
    data_dir, port = sys.argv[1:]
    vars(embedded)["spawn"] = partial(embedded.spawn, module=ENGINE)
    service.serve(load(None, {}, {"server.port": int(port), "server.data_dir": data_dir}))


if __name__ == "__main__":
    main()
