"""The command line: starts a server, asks a running one through the admin API, or simulates one. Imports what a command needs when it runs."""

import asyncio
import json
import lzma
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ninfer_proxy.config import ADMIN_TOKEN_FILE, Config, load
from ninfer_proxy.errors import CommandRefused, StartRefused
from ninfer_proxy.listen import base_url

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from ninfer_proxy.admin.client import AdminClient
    from ninfer_proxy.simulate.comparison import Comparison

PIPED_WIDTH = 220
"""Columns when the output is no terminal: nothing is folded that a script might read."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="One URL for agents: each conversation stays in one persistent continuation of a local engine.",
)
db = typer.Typer(no_args_is_help=True, help="The database in the data directory.")
app.add_typer(db, name="db")

Json = Annotated[bool, typer.Option("--json", help="Print the admin API's JSON.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="TOML file with settings.")]
DataDir = Annotated[Path | None, typer.Option(help="Where database, admin token and lock live.")]
Conversation = Annotated[
    str, typer.Argument(help="A conversation's id, or the number of the slot it holds.")
]


def main() -> None:
    """Entry point. What a person can put right is said in a sentence, without a traceback."""
    try:
        app()
    except (StartRefused, CommandRefused) as error:
        print(f"ninfer-proxy: {error}", file=sys.stderr)
        sys.exit(1)


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
    data_dir: DataDir = None,
    config: ConfigFile = None,
    model: Annotated[str | None, typer.Option(help="`demo`, or a directory with weights.")] = None,
    admin_token: Annotated[str | None, typer.Option(help="Token of the admin API.")] = None,
    api_key: Annotated[
        list[str] | None, typer.Option(help="A key that clients may use; repeat for more.")
    ] = None,
    slots: Annotated[
        int | None, typer.Option(help="Most conversations with a slot of their own.")
    ] = None,
    disk_bytes: Annotated[
        str | None, typer.Option(help="Files for state, like `20 GiB`; 0 for none.")
    ] = None,
    disk_dir: Annotated[Path | None, typer.Option(help="Where these files are.")] = None,
    request_log: Annotated[
        Path | None, typer.Option(help="File that gets a line for each request, for `simulate`.")
    ] = None,
    debug_hooks: Annotated[
        bool, typer.Option("--debug-hooks", help="Hooks for tests; see the admin API.")
    ] = False,
) -> None:
    """Start the proxy and its engine."""
    flags = {
        "server.host": host,
        "server.port": port,
        "server.data_dir": data_dir and str(data_dir),
        "model.path": model,
        "auth.admin_token": admin_token,
        "auth.api_keys": api_key or None,
        "slots.count": slots,
        "engine.disk_bytes": disk_bytes,
        "engine.disk_dir": disk_dir and str(disk_dir),
        "server.request_log": request_log and str(request_log),
        "server.debug_hooks": debug_hooks or None,
    }
    loaded = load(config, os.environ, flags)
    from ninfer_proxy.service import serve as run

    run(loaded)


@app.command("slots")
def list_slots(as_json: Json = False) -> None:
    """List the slots: who holds them, what they cost and what they saved."""
    from ninfer_proxy.admin.render import slots_table

    _report(lambda client: client.slots(), slots_table, as_json)


@app.command()
def show(conversation: Conversation, as_json: Json = False) -> None:
    """Show one conversation: checkpoints, latest responses, what was dropped."""
    from ninfer_proxy.admin.render import show_view

    _report(lambda client: client.show(conversation), show_view, as_json)


@app.command()
def explain(
    response: Annotated[str, typer.Argument(help="A response's id.", metavar="RESPONSE_ID")],
    as_json: Json = False,
) -> None:
    """Say why a response's prompt was, or was not, computed again."""
    from ninfer_proxy.admin.render import explain_view

    _report(lambda client: client.explain(response), explain_view, as_json)


@app.command()
def pin(
    conversation: Conversation,
    minutes: Annotated[
        float | None, typer.Option(help="How long from now; unset: slots.pin_s.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Keep a conversation's slot from being evicted, for a time."""
    _act(lambda client: client.pin(conversation, minutes), as_json, "pinned")


@app.command()
def unpin(conversation: Conversation, as_json: Json = False) -> None:
    """End a pin."""
    _act(lambda client: client.unpin(conversation), as_json, "no longer pinned")


@app.command()
def evict(conversation: Conversation, as_json: Json = False) -> None:
    """Drop a conversation's state and free its slot. Its words stay; its next turn is computed anew."""
    _act(lambda client: client.evict(conversation), as_json, "evicted")


@app.command()
def top(
    once: Annotated[bool, typer.Option("--once", help="Print one frame and end.")] = False,
    interval: Annotated[float, typer.Option(help="Seconds between frames.", min=0.2)] = 2.0,
    as_json: Json = False,
) -> None:
    """Watch engine, memory and slots. --json prints one frame."""
    from rich.live import Live

    from ninfer_proxy.admin.render import top_frame

    with _client() as client:
        status, slots = client.status(), client.slots()
        if as_json:
            _print_json({"status": status, **slots})
            return
        console = _console()
        if once:
            console.print(top_frame(status, slots, time.time()))
            return
        with Live(console=console, screen=True) as live:
            try:
                while True:
                    live.update(top_frame(status, slots, time.time()), refresh=True)
                    time.sleep(interval)
                    status, slots = client.status(), client.slots()
            except KeyboardInterrupt:
                pass


@app.command()
def simulate(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Traces of agents, or logs of `serve --request-log`.", metavar="TRACE..."
        ),
    ],
    slots: Annotated[
        int | None, typer.Option(help="Conversations that have room at a time; unset: 12.", min=1)
    ] = None,
    room: Annotated[
        str | None, typer.Option("--bytes", help="Memory for state instead, like `40 GiB`.")
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help="Only this policy; repeat for more.")
    ] = None,
    spread: Annotated[
        float, typer.Option(help="Seconds over which the traces begin, one by one.", min=0)
    ] = 7200.0,
    prefill: Annotated[
        float, typer.Option(help="Prompt tokens that are computed in a second.", min=1)
    ] = 2000.0,
    restore: Annotated[
        float, typer.Option(help="Bytes of state that are brought back in a second.", min=1)
    ] = 25e9,
    plot: Annotated[
        Path | None, typer.Option(help="Picture of slots over time, .png or .svg.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Replay recorded conversations through this proxy's planning, other policies and the optimum. Needs no server."""
    from ninfer_proxy.simulate.command import simulate as run
    from ninfer_proxy.simulate.cost import Cost
    from ninfer_proxy.simulate.render import comparison_table

    found = run(
        [(Path(path.name.removesuffix(".xz")).stem, _text_of(path)) for path in files],
        slots=slots,
        room=room,
        policies=policy or (),
        spread=spread,
        cost=Cost(prefill_tokens_s=prefill, restore_bytes_s=restore),
    )
    if plot is not None:
        _draw(found, plot)
    if as_json:
        _print_json(found.view())
    else:
        _console().print(comparison_table(found))


def _text_of(path: Path) -> str:
    try:
        content = path.read_bytes()
        return (lzma.decompress(content) if path.suffix == ".xz" else content).decode()
    except OSError as error:
        raise CommandRefused(f"{path} can't be read: {error.strerror}.") from None
    except (UnicodeDecodeError, lzma.LZMAError):
        raise CommandRefused(f"{path} is no text.") from None


def _draw(found: "Comparison", path: Path) -> None:
    from ninfer_proxy.simulate.plot import picture

    content = picture(found, path.suffix.removeprefix(".").lower() or "png")
    try:
        path.write_bytes(content)
    except OSError as error:
        raise CommandRefused(f"{path} can't be written: {error.strerror}.") from None


@db.command()
def upgrade(data_dir: DataDir = None, config: ConfigFile = None) -> None:
    """Bring the database's schema up to date. `serve` does this too; here it can be done with no server running."""
    flags = {"server.data_dir": data_dir and str(data_dir)}
    print(asyncio.run(_upgrade(load(config, os.environ, flags))))


async def _upgrade(config: Config) -> str:
    from ninfer_proxy.store import Store

    store = await Store.open(config.data_dir, clock=time.time)
    await store.close()
    before, after = store.revisions
    if before == after:
        return f"The database in {config.data_dir} is up to date (schema {after})."
    return f"The database in {config.data_dir} went from schema {before or 'none'} to {after}."


def _client() -> "AdminClient":
    """A client for the server that the environment names, or the one with default settings."""
    from ninfer_proxy.admin.client import AdminClient, read_token

    config = load(None, os.environ, {})
    url = os.environ.get("NINFER_PROXY_URL") or base_url(config.server.host, config.server.port)
    token = config.auth.admin_token or read_token(config.data_dir / ADMIN_TOKEN_FILE)
    return AdminClient(url, token)


def _report(
    ask: "Callable[[AdminClient], dict[str, Any]]",
    render: "Callable[[dict[str, Any], float], RenderableType]",
    as_json: bool,
) -> None:
    with _client() as client:
        answer = ask(client)
    if as_json:
        _print_json(answer)
    else:
        _console().print(render(answer, time.time()))


def _act(ask: "Callable[[AdminClient], dict[str, Any]]", as_json: bool, done: str) -> None:
    with _client() as client:
        answer = ask(client)
    if as_json:
        _print_json(answer)
        return
    slot = answer.get("evicted", answer)
    until = slot["pinned_until"]
    when = f" until {time.strftime('%Y-%m-%d %H:%M', time.localtime(until))}" if until else ""
    print(f"{slot['conversation']} in slot {slot['slot']} is {done}{when}.")


def _console() -> "Console":
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=PIPED_WIDTH)


def _print_json(value: Mapping[str, Any]) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))
