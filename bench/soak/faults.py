"""What is done to an engine from outside: it is stopped, its disk is full or gone, its files are damaged. Knows processes and files, no prompts."""

import os
import resource
import shutil
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

from engine.cache.disk_files import SET_ASIDE, UNFINISHED, Kind

NO_LIMIT = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
DAMAGED_IN = 6
"""One file of so many, at least one."""
DAMAGES = ("flip", "cut", "empty", "noise", "noise", "swap", "swap")


def pause(pid: int, seconds: float) -> None:
    """The process stands still for so long, as when the machine sleeps."""
    os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(pid, signal.SIGCONT)


@dataclass(slots=True)
class Disk:
    """The directory of an engine's disk tier, and those below it that hold one engine's files."""

    directory: Path

    def fill(self, pid: int) -> None:
        """From now on every file of that process that should grow can't."""
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))

    def free(self, pid: int) -> None:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, NO_LIMIT)

    def lose(self) -> bool:
        """All of it is gone at once, as when a disk is pulled out. False if there is nothing yet."""
        there = [path for path in self.directory.iterdir() if path.is_dir()]
        for path in there:
            gone = path.rename(self.directory.with_name(f"{self.directory.name}-gone"))
            shutil.rmtree(gone)
        return bool(there)

    def damage(self, random: Random) -> int:
        """Some files lose a bit, their end, all of it, or have other contents than their own; returns how many."""
        files = self.files()
        chosen = random.sample(files, -(-len(files) // DAMAGED_IN))
        return sum(self._damage_one(path, random) for path in chosen)

    def _damage_one(self, path: Path, random: Random) -> bool:
        others = [each for each in self.files() if each.parent == path.parent]
        other = random.choice(others).read_bytes() if others else b""
        # What the engine has just removed or set aside has its name no more, and mustn't get it back.
        with suppress(FileNotFoundError), path.open("r+b") as file:
            data = damaged(file.read(), random, other)
            file.seek(0)
            file.truncate()
            file.write(data)
            return True
        return False

    def litter(self, random: Random) -> int:
        """Leaves files that no engine made, one in each folder; returns how many. For when no engine runs."""
        folders = [path for each in self.directory.iterdir() for path in map(each.joinpath, Kind)]
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            name = random.choice(("README", f"{random.randbytes(16).hex()}", "half" + UNFINISHED))
            (folder / name).write_bytes(random.randbytes(random.choice((0, 100, 9000))))
        return len(folders)

    def files(self) -> list[Path]:
        """Pages, states and labels; what was set aside isn't one of them."""
        every = (path for kind in Kind for path in self.directory.glob(f"*/{kind}/*"))
        return sorted(path for path in every if path.suffix != UNFINISHED)

    def set_aside(self) -> int:
        return len(list(self.directory.glob(f"*/{SET_ASIDE}/*")))


def damaged(data: bytes, random: Random, other: bytes) -> bytes:
    """Never what it was."""
    result = bytearray(data)
    match random.choice(DAMAGES) if data else "grow":
        case "flip":
            result[random.randrange(len(data))] ^= 1 << random.randrange(8)
        case "cut":
            del result[random.randrange(len(data)) :]
        case "empty":
            result.clear()
        case "noise":
            begin = random.randrange(len(data))
            result[begin:] = random.randbytes(len(data) - begin)
        case "swap":
            result[:] = other
    return bytes(result) if result != data else data + b"\0"
