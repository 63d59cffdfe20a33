"""The import arrows of the architecture: which package may know which. Read off the syntax trees; imports nothing."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# A module may import another of our packages only where the longest rule that matches it allows.
ALLOWED: dict[str, tuple[str, ...]] = {
    "ninfer_proxy": (),
    "ninfer_proxy.types": ("engine.api",),
    "ninfer_proxy.errors": (),
    "ninfer_proxy.wording": (),
    "ninfer_proxy.events": ("ninfer_proxy.types", "ninfer_proxy.errors"),
    "ninfer_proxy.logged": (),
    "ninfer_proxy.items": ("ninfer_proxy.types", "ninfer_proxy.errors"),
    "ninfer_proxy.compared": ("ninfer_proxy.types",),
    "ninfer_proxy.habits": (),
    "ninfer_proxy.config": ("ninfer_proxy.errors", "ninfer_proxy.config_values"),
    "ninfer_proxy.listen": ("ninfer_proxy.errors",),
    "ninfer_proxy.metrics": ("ninfer_proxy.types",),
    "ninfer_proxy.prompt": ("ninfer_proxy.types", "ninfer_proxy.items", "engine.api"),
    "ninfer_proxy.output": (
        "ninfer_proxy.types",
        "ninfer_proxy.events",
        "engine.api",
    ),
    "ninfer_proxy.response_object": (
        "ninfer_proxy.types",
        "ninfer_proxy.events",
        "ninfer_proxy.errors",
    ),
    "ninfer_proxy.identity": (
        "ninfer_proxy.identity",
        "ninfer_proxy.compared",
        "ninfer_proxy.types",
        "ninfer_proxy.items",
        "ninfer_proxy.wording",
    ),
    "ninfer_proxy.planning": (
        "ninfer_proxy.planning",
        "ninfer_proxy.compared",
        "ninfer_proxy.habits",
        "ninfer_proxy.types",
        "ninfer_proxy.wording",
        "engine.api",
    ),
    "ninfer_proxy.store": (
        "ninfer_proxy.store",
        "ninfer_proxy.compared",
        "ninfer_proxy.habits",
        "ninfer_proxy.types",
        "ninfer_proxy.events",
        "ninfer_proxy.errors",
        "ninfer_proxy.items",
    ),
    "ninfer_proxy.backends": (
        "ninfer_proxy.backends",
        "ninfer_proxy.errors",
        "ninfer_proxy.wording",
        "engine.api",
    ),
    "ninfer_proxy.turn": (
        "ninfer_proxy.turn",
        "ninfer_proxy.compared",
        "ninfer_proxy.habits",
        "ninfer_proxy.identity",
        "ninfer_proxy.planning",
        "ninfer_proxy.store",
        "ninfer_proxy.backends.base",
        "ninfer_proxy.types",
        "ninfer_proxy.errors",
        "ninfer_proxy.events",
        "ninfer_proxy.items",
        "ninfer_proxy.logged",
        "ninfer_proxy.prompt",
        "ninfer_proxy.output",
        "ninfer_proxy.response_object",
        "ninfer_proxy.metrics",
        "engine.api",
    ),
    "ninfer_proxy.http": (
        "ninfer_proxy.http",
        "ninfer_proxy.types",
        "ninfer_proxy.errors",
        "ninfer_proxy.events",
        "ninfer_proxy.items",
        "ninfer_proxy.metrics",
        "ninfer_proxy.wording",
    ),
    "ninfer_proxy.admin": (
        "ninfer_proxy.admin",
        "ninfer_proxy.types",
        "ninfer_proxy.errors",
        "ninfer_proxy.store",
        "ninfer_proxy.backends.base",
        "ninfer_proxy.planning",
        "ninfer_proxy.wording",
        "engine.api",
    ),
    # Replays through the real deciding code; of the engine only what is pure and says which checkpoints stand and which make way.
    "ninfer_proxy.simulate": (
        "ninfer_proxy.simulate",
        "ninfer_proxy.identity",
        "ninfer_proxy.planning",
        "ninfer_proxy.logged",
        "ninfer_proxy.prompt",
        "ninfer_proxy.types",
        "ninfer_proxy.config_values",
        "ninfer_proxy.errors",
        "ninfer_proxy.wording",
        "engine.api",
        "engine.planner.residency",
        "engine.sequence",
    ),
    "ninfer_proxy.app": ("ninfer_proxy",),
    "ninfer_proxy.stopping": (),
    "ninfer_proxy.service": ("ninfer_proxy", "engine.api"),
    "ninfer_proxy.cli": (
        "ninfer_proxy.admin.client",
        "ninfer_proxy.admin.render",
        "ninfer_proxy.config",
        "ninfer_proxy.errors",
        "ninfer_proxy.listen",
        "ninfer_proxy.service",
        "ninfer_proxy.simulate",
        "ninfer_proxy.store",
    ),
    "engine": (),
    "engine.prompt": (),
    "engine.inventory": (),
    "engine.api": ("engine.prompt", "engine.inventory"),
    "engine.errors": (),
    "engine.config": ("engine.errors",),
    "engine.heap": (),
    "engine.sequence": ("engine.api",),
    "engine.planner": ("engine.planner", "engine.errors", "engine.api"),
    "engine.ops": ("engine.ops",),
    "engine.models": ("engine.models", "engine.ops", "engine.errors"),
    "engine.weights": ("engine.weights", "engine.models", "engine.errors"),
    "engine.text": ("engine.text", "engine.api", "engine.errors"),
    "engine.cache": (
        "engine.cache",
        "engine.models",
        "engine.api",
        "engine.planner",
    ),
    "engine.sampling": ("engine.api", "engine.ops"),
    "engine.runner": (
        "engine.models",
        "engine.cache",
        "engine.sampling",
        "engine.sequence",
        "engine.errors",
    ),
    "engine.following": ("engine.api", "engine.planner", "engine.sequence"),
    "engine.resuming": (
        "engine.api",
        "engine.cache",
        "engine.planner",
        "engine.sequence",
    ),
    "engine.entrance": (
        "engine.api",
        "engine.cache",
        "engine.planner",
        "engine.resuming",
        "engine.sequence",
    ),
    "engine.saving": (
        "engine.api",
        "engine.cache",
        "engine.outcomes",
        "engine.resuming",
        "engine.sequence",
    ),
    "engine.preparing": (
        "engine.api",
        "engine.cache",
        "engine.entrance",
        "engine.planner",
        "engine.resuming",
        "engine.saving",
        "engine.sequence",
    ),
    "engine.scheduler": (
        "engine.api",
        "engine.cache",
        "engine.entrance",
        "engine.following",
        "engine.outcomes",
        "engine.planner",
        "engine.preparing",
        "engine.resuming",
        "engine.saving",
        "engine.sequence",
    ),
    "engine.snapshots": ("engine.api", "engine.scheduler"),
    "engine.outcomes": ("engine.planner", "engine.sequence"),
    "engine.turns": (
        "engine.api",
        "engine.entrance",
        "engine.planner",
        "engine.sequence",
    ),
    "engine.inbox": ("engine.api", "engine.turns"),
    "engine.ahead": (
        "engine.planner",
        "engine.runner",
        "engine.scheduler",
        "engine.sequence",
    ),
    "engine.loop": (
        "engine.ahead",
        "engine.api",
        "engine.cache.integrity",
        "engine.errors",
        "engine.inbox",
        "engine.outcomes",
        "engine.planner",
        "engine.runner",
        "engine.sampling",
        "engine.scheduler",
        "engine.sequence",
        "engine.snapshots",
        "engine.turns",
    ),
    "engine.reader": (
        "engine.api",
        "engine.inbox",
        "engine.planner",
        "engine.text",
        "engine.turns",
        "engine.validity",
    ),
    "engine.validity": ("engine.api",),
    "engine.assemble": ("engine",),
    "engine.serve": (
        "engine.api",
        "engine.assemble",
        "engine.config",
        "engine.errors",
        "engine.heap",
        "engine.inbox",
        "engine.reader",
        "engine.watchdog",
    ),
    "engine.watchdog": (),
}

# External packages that only some of our packages may know.
CONFINED: dict[str, tuple[str, ...]] = {
    "torch": ("engine",),
    "triton": ("engine.ops",),
    "starlette": (
        "ninfer_proxy.app",
        "ninfer_proxy.service",
        "ninfer_proxy.http",
        "ninfer_proxy.admin",
    ),
    "uvicorn": ("ninfer_proxy.service",),
    "sqlalchemy": ("ninfer_proxy.store",),
    "alembic": ("ninfer_proxy.store",),
    "httpx": ("ninfer_proxy.admin.client",),
    "pydantic": ("ninfer_proxy.http",),
    "prometheus_client": ("ninfer_proxy.metrics",),
    "typer": ("ninfer_proxy.cli",),
    "rich": (
        "ninfer_proxy.cli",
        "ninfer_proxy.admin.render",
        "ninfer_proxy.service",
        "ninfer_proxy.simulate.render",
    ),
    "matplotlib": ("ninfer_proxy.simulate.plot",),
    "tokenizers": ("engine.text",),
    "jinja2": ("engine.text",),
    "safetensors": ("engine.weights",),
    "numpy": ("engine.runner",),
    "transformers": (),
}

PURE = (
    "ninfer_proxy.types",
    "ninfer_proxy.errors",
    "ninfer_proxy.events",
    "ninfer_proxy.items",
    "ninfer_proxy.logged",
    "ninfer_proxy.prompt",
    "ninfer_proxy.output",
    "ninfer_proxy.response_object",
    "ninfer_proxy.wording",
    "ninfer_proxy.identity",
    "ninfer_proxy.planning",
    "ninfer_proxy.simulate",
    "ninfer_proxy.admin.views",
    "ninfer_proxy.admin.render",
    "ninfer_proxy.http.wire_chat",
    "ninfer_proxy.http.wire_chat_events",
    "ninfer_proxy.http.wire_common",
    "ninfer_proxy.http.wire_events",
    "ninfer_proxy.http.wire_items",
    "ninfer_proxy.http.wire_json",
    "ninfer_proxy.http.wire_reasoning",
    "ninfer_proxy.http.wire_responses",
    "ninfer_proxy.store.codec",
    "ninfer_proxy.store.records",
    "engine.config",
    "engine.errors",
    "engine.inventory",
    "engine.planner",
    "engine.prompt",
    "engine.sequence",
    "engine.validity",
)
IMPURE = {
    "asyncio", "datetime", "httpx", "logging", "os", "pathlib", "random", "secrets", "socket", "sqlalchemy",
    "sqlite3", "starlette", "subprocess", "sys", "threading", "time", "torch", "uuid",
}  # fmt: skip


def modules() -> Iterator[tuple[str, Path]]:
    for package in ("ninfer_proxy", "engine"):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports(path: Path) -> set[str]:
    """Full names of what a file imports. `from a.b import c` counts as a.b.c where that is a module of ours."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            found.update(resolve(node.module, alias.name) for alias in node.names)
    return found


def resolve(module: str, name: str) -> str:
    inner = ROOT / Path(*module.split(".")) / name
    return f"{module}.{name}" if inner.is_dir() or inner.with_suffix(".py").is_file() else module


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def rule_for(module: str) -> tuple[str, ...]:
    best = max((name for name in ALLOWED if within(module, name)), key=len)
    return (*ALLOWED[best], module)


@pytest.mark.parametrize(("module", "path"), list(modules()), ids=lambda value: str(value)[-60:])
def test_imports_follow_the_arrows(module: str, path: Path) -> None:
    ours = {
        name for name in imports(path) if within(name, "engine") or within(name, "ninfer_proxy")
    }
    wrong = {name for name in ours if not any(within(name, target) for target in rule_for(module))}
    assert not wrong, f"{module} may not import {sorted(wrong)}"


def test_every_rule_is_needed() -> None:
    """An arrow that nothing follows is a door left open."""
    used: dict[str, set[str]] = {package: set() for package in ALLOWED}
    for module, path in modules():
        package = max((name for name in ALLOWED if within(module, name)), key=len)
        used[package] |= {
            target
            for target in ALLOWED[package]
            if any(within(name, target) for name in imports(path))
        }
    unused = {package: set(ALLOWED[package]) - found for package, found in used.items()}
    assert not {package: sorted(rest) for package, rest in unused.items() if rest}


@pytest.mark.parametrize(("module", "path"), list(modules()), ids=lambda value: str(value)[-60:])
def test_libraries_stay_where_they_belong(module: str, path: Path) -> None:
    tops = {name.split(".")[0] for name in imports(path)}
    wrong = {
        top
        for top in tops & CONFINED.keys()
        if not any(within(module, package) for package in CONFINED[top])
    }
    assert not wrong, f"{module} may not import {sorted(wrong)}"
    if any(within(module, pure) for pure in PURE):
        assert not tops & IMPURE, f"{module} is pure and may not import {sorted(tops & IMPURE)}"


def test_the_proxy_needs_no_torch() -> None:
    """torch lives in the engine process; a proxy in front of another server doesn't even load it."""
    code = "import ninfer_proxy.service, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "False", done.stdout + done.stderr
