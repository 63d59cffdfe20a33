"""A running OpenClaw with its own home, state and workspace: starts the gateway, drives its command line. Doesn't judge."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.clients import install
from tests.clients.processes import Service, free_port, run

SHIPPED = Path(__file__).parents[2] / "config" / "openclaw.json"
START_TIMEOUT_S = 300  # some 15 s on a free machine, minutes on a busy one
ANSWER_TOKENS = 256
TURN_TIMEOUT_S = (
    600  # the client's own default; a cold 17 K-token prefill takes 30 s of one free core
)


@dataclass(frozen=True, slots=True)
class Said:
    """What one command line call gave back."""

    ok: bool
    text: str


@dataclass(frozen=True, slots=True)
class Client:
    """The command line of one running gateway."""

    program: install.OpenClaw
    env: Mapping[str, str]
    home: Path
    gateway: Service

    def say(self, conversation: str, message: str) -> Said:
        """One user turn. `conversation` is "main" for the agent's main session, else an explicit session id."""
        where = ["--agent", "main"] if conversation == "main" else ["--session-id", conversation]
        out = self._call(
            "agent", *where, "--message", message, "--json", "--timeout", str(TURN_TIMEOUT_S)
        )
        answer = _json(out.text)
        payloads = (answer.get("result") or {}).get("payloads") or []
        text = "\n".join(str(payload.get("text")) for payload in payloads)
        return Said(ok=out.ok and answer.get("status") == "ok", text=text or out.text[-500:])

    def wake(self) -> Said:
        """Ask for a heartbeat of the main session now; it runs a little later."""
        return self._call("system", "event", "--text", "Check in.", "--mode", "now", "--json")

    def compact(self, conversation: str) -> Said:
        out = self._call("sessions", "compact", f"agent:main:explicit:{conversation}", "--json")
        answer = _json(out.text)
        return Said(ok=out.ok and answer.get("compacted") is True, text=out.text[-500:])

    def _call(self, *arguments: str) -> Said:
        ran = run(
            self.program.command(*arguments),
            env=self.env,
            cwd=self.home,
            timeout_s=TURN_TIMEOUT_S + 30,
        )
        return Said(ok=ran.returncode == 0, text=ran.stdout or ran.stderr)


@contextmanager
def running(
    program: install.OpenClaw, config: Mapping[str, Any], home: Path, log: Path
) -> Iterator[Client]:
    """A gateway with a fresh state under `home`, until the block ends. `config` already names its port."""
    state, temp = home / "state", home / "tmp"
    for folder in (state, temp):
        folder.mkdir(parents=True)
    path = state / "openclaw.json"
    path.write_text(json.dumps(config, indent=2))
    env = {
        "PATH": f"{program.node.parent}:{os.environ.get('PATH', '')}",
        "HOME": str(home),
        "TMPDIR": str(temp),
        "NO_COLOR": "1",
        "OPENCLAW_DISABLE_UPDATE_CHECK": "1",
        "OPENCLAW_STATE_DIR": str(state),
        "OPENCLAW_CONFIG_PATH": str(path),
    }
    port = str(config["gateway"]["port"])
    command = program.command("gateway", "run", "--port", port, "--bind", "loopback")
    gateway = Service("the OpenClaw gateway", command, log=log, env=env, cwd=home)
    try:
        gateway.wait_until(lambda: "[gateway] ready" in gateway.text(), timeout_s=START_TIMEOUT_S)
        yield Client(program=program, env=env, home=home, gateway=gateway)
    finally:
        gateway.stop()


def recommended(base_url: str, key: str) -> dict[str, Any]:
    """The shipped file with its two placeholders filled in."""
    config = _json(SHIPPED.read_text().replace("http://127.0.0.1:PORT/v1", base_url))
    provider(config)["apiKey"] = key
    return config


def plain(base_url: str, key: str) -> dict[str, Any]:
    """What somebody writes who knows nothing of caches: an own provider id and no compat flags."""
    shipped = recommended(base_url, key)
    entry = provider(shipped)
    models = [{k: v for k, v in model.items() if k != "compat"} for model in entry["models"]]
    return {
        "gateway": shipped["gateway"],
        "models": {"mode": "merge", "providers": {"local": {**entry, "models": models}}},
        "agents": {"defaults": {"model": {"primary": f"local/{models[0]['id']}"}}},
    }


def for_a_test(config: Mapping[str, Any], log: Path) -> dict[str, Any]:
    """The only changes the harness makes: port, log file, a short limit for answers, no audit of summaries.

    The limit bounds the time of a model that rambles. The audit (`qualityGuard`) refuses a summary without five fixed headings, which a model of five million
    parameters does not write; the requests of a compaction are the same without it.
    """
    changed: dict[str, Any] = json.loads(json.dumps(config))
    changed["gateway"]["port"] = free_port()
    changed["logging"] = {"file": str(log)}
    for model in provider(changed)["models"]:
        model["maxTokens"] = ANSWER_TOKENS
    defaults = changed["agents"]["defaults"]
    defaults["compaction"] = {"qualityGuard": {"enabled": False}}
    return changed


def provider(config: Mapping[str, Any]) -> dict[str, Any]:
    entries: dict[str, dict[str, Any]] = config["models"]["providers"]
    (entry,) = entries.values()
    return entry


def _json(text: str) -> dict[str, Any]:
    """The JSON object in `text`; some commands print a notice before it."""
    start = text.find("{")
    try:
        found = json.loads(text[start:]) if start >= 0 else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
