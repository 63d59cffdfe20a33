"""`make test-clients`: the real OpenClaw against the proxy, in two configurations. The order of a run, and its exit code."""

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.clients import install, openclaw, proxy, report, rows, scenario
from tests.clients.checks import Check, Evidence, all_checks
from tests.clients.classify import SYSTEM, items_of
from tests.clients.processes import NotReady, free_port
from tests.clients.recorder import Exchange, Recorder

ROOT = Path(__file__).parents[2]
CONFIGURATIONS: Mapping[str, Callable[[str, str], dict[str, Any]]] = {
    "plain": openclaw.plain,
    "recommended": openclaw.recommended,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    name: str
    rows: Sequence[rows.Row]
    cold: Sequence[proxy.Cold]
    checks: Sequence[Check]
    steps: Sequence[scenario.Done]
    slots: Sequence[Mapping[str, Any]]
    head_tokens: int
    seconds: float

    def as_json(self) -> dict[str, Any]:
        return {
            "configuration": self.name,
            "client": install.OPENCLAW,
            "seconds": self.seconds,
            "head_tokens": self.head_tokens,
            "totals": report.totals(self.rows),
            "requests": [row.as_json() for row in self.rows],
            "cold": [asdict(run) for run in self.cold],
            "checks": [asdict(check) for check in self.checks],
            "steps": [asdict(step) for step in self.steps],
            "slots": list(self.slots),
        }


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that every `finally` below runs
    work = Path(tempfile.mkdtemp(prefix="ninfer-clients-"))
    outcomes: list[Outcome] = []
    faults: list[str] = []
    try:
        program = install.openclaw(ROOT / ".clients", _say)
        for name in options.configurations:
            try:
                outcomes.append(_configuration(name, program, work / name, options))
            except (NotReady, scenario.StepFailed, proxy.ProxyCommandFailed) as fault:
                faults.append(f"{name}: {fault}")
                _say(f"FAIL  {name} could not be finished: {fault}")
    except install.InstallFailed as fault:
        faults.append(str(fault))
        _say(f"FAIL  {fault}")
    finally:
        if options.keep or faults:
            _say(f"logs and state are kept in {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)
    return _close(outcomes, faults, options.report)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run_openclaw", description=__doc__)
    names = list(CONFIGURATIONS)
    parser.add_argument("--configurations", nargs="+", choices=names, default=names)
    parser.add_argument(
        "--report", type=Path, default=ROOT / "var/clients/openclaw.json", metavar="PATH"
    )
    parser.add_argument("--cold", type=int, default=4, help="requests to repeat cold (default 4)")
    parser.add_argument(
        "--scripted-tool-turn",
        action="store_true",
        help="the harness, not the model, emits the tool call; the report says so",
    )
    parser.add_argument("--keep", action="store_true", help="keep logs, state and workspace")
    parser.add_argument("--proxy-bin", type=Path, help="default: ninfer-proxy beside this python")
    return parser.parse_args(arguments)


def _configuration(
    name: str, program: install.OpenClaw, home: Path, options: argparse.Namespace
) -> Outcome:
    """One run from empty state to verdicts. Everything it starts is ended before it returns or raises."""
    began = time.monotonic()
    _say(f"\n=== configuration {name} ===")
    home.mkdir(parents=True)
    script = scenario.scripted_tool_turn if options.scripted_tool_turn else None
    if script:
        _say("!!! --scripted-tool-turn: the tool call is played by the harness, not by the model")
    with proxy.serving(home / "proxy", home / "proxy.log", options.proxy_bin) as server:
        _say(f"proxy ready after {time.monotonic() - began:.0f} s")
        with Recorder(server.url, free_port(), script) as recorder:
            base = f"http://127.0.0.1:{recorder.port}/v1"
            config = openclaw.for_a_test(
                CONFIGURATIONS[name](base, "sk-local"), home / "openclaw.log"
            )
            with openclaw.running(program, config, home / "client", home / "gateway.log") as client:
                _say(f"OpenClaw ready after {time.monotonic() - began:.0f} s")
                try:
                    steps = scenario.play(client, recorder, _say)
                finally:
                    recorder.save(home / "requests.jsonl")
        outcome = _judge(name, server, recorder.exchanges, steps, options.cold, began)
    _print(outcome)
    return outcome


def _judge(
    name: str,
    server: proxy.Proxy,
    exchanges: Sequence[Exchange],
    steps: Sequence[scenario.Done],
    cold: int,
    began: float,
) -> Outcome:
    slots = server.slots()  # before anything else is asked of the proxy
    explained, unexplained = _explained(server, exchanges)
    found = rows.rows_of(exchanges, explained)
    head = _head_tokens(server, exchanges, found)
    later = [e for e, row in _numbered(exchanges, found) if row.later_turn and row.answered]
    chills = [server.cold(exchange) for exchange in _sample(later, cold)]
    evidence = Evidence(
        rows=found,
        slots=slots,
        head_tokens=head,
        tool_outputs=rows.tool_outputs(exchanges),
        compacted=any(done.step.do == "compact" and done.said.ok for done in steps),
        cold=chills,
        unexplained=unexplained,
        headers=[[*each.headers] for each in exchanges if each.path.endswith("/responses")],
    )
    return Outcome(
        name=name,
        rows=found,
        cold=chills,
        checks=all_checks(evidence, scenario.TOOL_OUTPUT),
        steps=steps,
        slots=slots,
        head_tokens=head,
        seconds=time.monotonic() - began,
    )


def _explained(
    server: proxy.Proxy, exchanges: Sequence[Exchange]
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    explained: dict[str, dict[str, Any]] = {}
    failed: list[str] = []
    for exchange in exchanges:
        if exchange.response_id and not exchange.scripted:
            try:
                explained[exchange.response_id] = server.explain(exchange.response_id)
            except proxy.ProxyCommandFailed as fault:
                failed.append(f"#{exchange.number} {fault}")
    return explained, failed


def _head_tokens(
    server: proxy.Proxy, exchanges: Sequence[Exchange], found: Sequence[rows.Row]
) -> int:
    """By the proxy's own count, else by the head's share of the first prompt's characters."""
    first, row = next((e, r) for e, r in _numbered(exchanges, found) if r.main_line and r.answered)
    system = [i for i in items_of(first.body) if i.get("role") in SYSTEM]
    counted = server.head_tokens(first.body, system)
    return counted if counted is not None else round(row.prompt * row.head_share)


def _numbered(
    exchanges: Sequence[Exchange], found: Sequence[rows.Row]
) -> list[tuple[Exchange, rows.Row]]:
    by_number = {exchange.number: exchange for exchange in exchanges}
    return [(by_number[row.number], row) for row in found]


def _sample(candidates: Sequence[Exchange], count: int) -> list[Exchange]:
    """`count` of them, evenly spread, the last one included."""
    if count >= len(candidates):
        return list(candidates)
    step = len(candidates) / count
    return [candidates[round((n + 1) * step) - 1] for n in range(count)]


def _print(outcome: Outcome) -> None:
    _say(f"\nconfiguration {outcome.name}: {outcome.seconds:.0f} s, {install.OPENCLAW}")
    _say(
        "changed for the test: port, log file, maxTokens 256, compaction.qualityGuard off (openclaw.for_a_test)"
    )
    _say(report.table(outcome.rows, outcome.cold))
    _say("c: continued by previous_response_id;  *: first turn after the compaction")
    _say(json.dumps(report.totals(outcome.rows)))
    for done in outcome.steps:
        if done.step.recalls:
            hit = "recalled" if done.step.recalls.lower() in done.said.text.lower() else "missed"
            _say(f"{hit:8}  {done.step.message}  ->  {' '.join(done.said.text.split())[:80]}")
    _say(report.verdicts(outcome.checks))


def _close(outcomes: Sequence[Outcome], faults: Sequence[str], path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    found = {"configurations": [outcome.as_json() for outcome in outcomes], "faults": list(faults)}
    path.write_text(json.dumps(found, indent=1))
    _say(f"\nreport: {path}")
    verdicts = [check.passed for outcome in outcomes for check in outcome.checks]
    failed = verdicts.count(False) + len(faults)
    _say(f"{verdicts.count(True)} passed, {failed} failed")
    return 1 if failed or not verdicts else 0


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
