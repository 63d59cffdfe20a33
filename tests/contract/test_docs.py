"""What users can meet is documented: endpoints, commands, flags, error codes, reasons, headers, metrics."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main
from starlette.routing import Route

from ninfer_proxy import errors
from ninfer_proxy.admin.debug import debug_routes
from ninfer_proxy.admin.routes import admin_routes
from ninfer_proxy.backends.scripted import ScriptedBackend
from ninfer_proxy.cli import app as cli
from ninfer_proxy.http.routes import routes
from ninfer_proxy.http.settings import HttpSettings
from ninfer_proxy.http.wire_common import WireDefaults
from ninfer_proxy.metrics import Metrics
from ninfer_proxy.types import Reason

ROOT = Path(__file__).parents[2]
REFERENCE = (ROOT / "ninfer_proxy" / "README.md").read_text()
README = (ROOT / "README.md").read_text()


def all_paths() -> set[str]:
    nothing: Any = ScriptedBackend()
    settings = HttpSettings(WireDefaults("m"), b"secret")
    found = [
        *routes(nothing, settings, Metrics()),
        *admin_routes(nothing, "token"),
        *debug_routes(nothing, "token"),
    ]
    paths = {route.path for route in found if isinstance(route, Route)}
    # Each client endpoint also exists without /v1; the reference says so once.
    return {re.sub(r":path\}", "}", path) for path in paths if f"/v1{path}" not in paths}


@pytest.mark.parametrize("path", sorted(all_paths()))
def test_endpoints(path: str) -> None:
    assert path in REFERENCE


def error_classes(root: type[errors.ProxyError] = errors.ProxyError) -> list[type]:
    return [root, *(found for each in root.__subclasses__() for found in error_classes(each))]


@pytest.mark.parametrize("kind", error_classes(), ids=lambda kind: kind.__name__)
def test_error_codes(kind: type[errors.ProxyError]) -> None:
    row = next(line for line in REFERENCE.splitlines() if f"`{kind.code}`" in line)
    assert row.startswith(f"| {kind.status} |")
    assert kind.__name__ in (errors.__doc__ or "")


@pytest.mark.parametrize("reason", list(Reason))
def test_reasons(reason: Reason) -> None:
    assert f"`{reason}`" in REFERENCE


def test_metrics() -> None:
    families = {family.name: family for family in Metrics().registry.collect()}
    shown = {
        f"{name}_total" if family.type == "counter" else name for name, family in families.items()
    }
    assert {name for name in shown if name not in REFERENCE} == set()


def test_commands_and_flags() -> None:
    group: Any = typer.main.get_command(cli)
    for name, command in group.commands.items():
        assert command.help, f"{name} has no help"
        assert f"ninfer-proxy {name}" in REFERENCE or f"`{name}`" in REFERENCE, name
        for parameter in command.params:
            assert getattr(parameter, "help", None) or parameter.name == "help", parameter.name
    flags = {option for each in group.commands["serve"].params for option in each.opts}
    documented = (ROOT / "config" / "README.md").read_text()
    assert {flag for flag in flags if flag not in documented} == set()


def test_headers_that_are_sent() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "ninfer_proxy").rglob("*.py"))
    sent = set(re.findall(r'"(x-(?:ninfer|request)-[a-z-]+)"', sources))
    assert sent
    assert {name for name in sent if f"`{name}`" not in REFERENCE} == set()


def test_make_targets_in_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"(?:`|\$ )make ([a-z-]+)", README))
    assert {"serve", "test"} <= named
    assert {name for name in named if f"\n{name}:" not in makefile} == set()


def test_files_that_the_readme_links_exist() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert {link for link in links if not (ROOT / link).exists()} == set()


def test_agents_file_is_short() -> None:
    assert len((ROOT / "AGENTS.md").read_bytes()) <= 2048


def test_the_readme_has_no_gaps() -> None:
    assert not re.findall(r"@[A-Z]+@", README)
