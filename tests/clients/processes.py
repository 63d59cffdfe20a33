"""Child processes that never outlive the run: start, wait until ready, end with all descendants. Doesn't know what they are."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path


class NotReady(Exception):
    """A process ended, or stayed silent too long, before it was ready; the message holds its last output."""


class Service:
    """One long-running process, leader of its own group, its output in `log`. `stop` is safe to call twice."""

    def __init__(
        self, name: str, command: Sequence[str], *, log: Path, env: Mapping[str, str], cwd: Path
    ) -> None:
        self.name, self.log = name, log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command, stdout=output, stderr=output, env=env, cwd=cwd, start_new_session=True
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until(self, ready: Callable[[], bool], timeout_s: float) -> None:
        """Poll `ready` until it holds. Raises NotReady when the process ends first or time runs out."""
        deadline = time.monotonic() + timeout_s
        while not ready():
            code = self._process.poll()
            if code is not None:
                raise NotReady(f"{self.name} ended with code {code}:\n{self.tail()}")
            if time.monotonic() > deadline:
                raise NotReady(f"{self.name} was not ready after {timeout_s:.0f} s:\n{self.tail()}")
            time.sleep(0.2)

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def tail(self, lines: int = 25) -> str:
        return "\n".join(self.text().splitlines()[-lines:])

    def stop(self, grace_s: float = 15.0) -> None:
        """Ask the group to end, then end whatever is left, helpers in groups of their own included."""
        family = descendants(
            self._process.pid
        )  # before the parent goes: orphans lose their parent id
        if self._process.poll() is None:
            _signal_group(self._process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=grace_s)
        _signal_group(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pid, started in family.items():
            if _start_time(pid) == started:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def run(
    command: Sequence[str], *, env: Mapping[str, str], cwd: Path, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run to the end, standard input empty. Past `timeout_s` the whole group is ended and the code is 124."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        cwd=cwd,
        start_new_session=True,
    )
    code: int | None = None
    try:
        out, err = process.communicate(timeout=timeout_s)
        code = process.returncode
    except subprocess.TimeoutExpired:
        _signal_group(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        code = 124
    finally:
        if code is None:  # interrupted
            _signal_group(process.pid, signal.SIGKILL)
            process.wait()
    return subprocess.CompletedProcess(list(command), code, out, err)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def descendants(pid: int) -> dict[int, int]:
    """Every process below `pid` → its start time, which tells it from a later process with the same id."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: dict[int, int] = {}
    waiting = list(children.get(pid, ()))
    while waiting:
        child = waiting.pop()
        if (started := _start_time(child)) is not None:
            found[child] = started
        waiting += children.get(child, ())
    return found


def _start_time(pid: int) -> int | None:
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat after the name (which may hold spaces): state, parent, ...; empty once it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _signal_group(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
