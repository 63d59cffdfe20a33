"""A case file as values: steps in order, checks with their parameters. Knows no server and no meaning of a check."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cases.macros import with_texts

DATA = Path(__file__).parent / "data"
SPOKEN = ("check", "level", "lint", "canon")
"""Of a check, what is no parameter. `lint` speaks to case_tool.py: whether a bound can be met is its business."""


@dataclass(frozen=True, slots=True)
class Request:
    """`emits` is what a scripted model says, None where the real one answers."""

    step: str
    method: str
    path: str
    body: Mapping[str, Any]
    headers: Mapping[str, str]
    emits: tuple[Any, ...] | None = None
    fixture_parent: str | None = None


@dataclass(frozen=True, slots=True)
class Parallel:
    step: str
    requests: tuple[Request, ...]
    stagger_s: float


@dataclass(frozen=True, slots=True)
class Control:
    step: str
    name: str
    parameters: Mapping[str, Any]


Step = Request | Parallel | Control


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    parameters: Mapping[str, Any]
    must: bool = True

    def __str__(self) -> str:
        shown = ", ".join(f"{key}={value!r}" for key, value in self.parameters.items())
        return f"{self.name}({shown})"


@dataclass(frozen=True, slots=True)
class Case:
    """`equivalences` are what its bounds rely on: of a client's spellings, those that mean the same (`canon` of its checks)."""

    id: str
    needs: frozenset[str]
    profile: Mapping[str, Any]
    steps: tuple[Step, ...]
    checks: tuple[Check, ...] = ()
    equivalences: frozenset[str] = frozenset()

    def requests(self) -> Iterator[Request]:
        for step in self.steps:
            if isinstance(step, Request):
                yield step
            elif isinstance(step, Parallel):
                yield from step.requests

    def controls(self) -> Iterator[Control]:
        return (step for step in self.steps if isinstance(step, Control))


def read_cases(folder: Path) -> list[Case]:
    """All cases of a folder, by number. Errors: OSError, ValueError, KeyError name a file that isn't one."""
    paths = sorted(folder.glob("*.json"), key=_number)
    return [read_case(json.loads(path.read_text(encoding="utf-8"))) for path in paths]


def read_case(document: Mapping[str, Any]) -> Case:
    checks = document["expect"]["checks"]
    return Case(
        id=document["id"],
        needs=frozenset(document["needs"]),
        profile=document.get("profile") or {},
        steps=tuple(map(_step, document["requests"])),
        checks=tuple(_check(with_texts(each)) for each in checks),
        equivalences=frozenset(name for each in checks for name in each.get("canon", ())),
    )


def _number(path: Path) -> tuple[int, str]:
    first = path.stem.partition("-")[0]
    return (int(first) if first.isdecimal() else 0, path.stem)


def _step(raw: Mapping[str, Any]) -> Step:
    if "parallel" in raw:
        requests = tuple(map(_request, raw["parallel"]))
        return Parallel(raw["step"], requests, raw.get("stagger_ms", 0) / 1000)
    if "control" in raw:
        parameters = {key: raw[key] for key in raw if key not in ("step", "control")}
        return Control(raw["step"], raw["control"], parameters)
    return _request(raw)


def _request(raw: Mapping[str, Any]) -> Request:
    emits = with_texts(raw.get("model_emits"))
    return Request(
        step=raw["step"],
        method=raw.get("method", "POST"),
        path=raw["path"],
        body=with_texts(raw.get("body") or {}),
        headers=raw.get("headers") or {},
        emits=None if emits is None else tuple(emits if isinstance(emits, list) else [emits]),
        fixture_parent=raw.get("prev_fixture"),
    )


def _check(raw: Mapping[str, Any]) -> Check:
    parameters = {key: raw[key] for key in raw if key not in SPOKEN}
    return Check(raw["check"], parameters, must=raw.get("level", "must") == "must")
