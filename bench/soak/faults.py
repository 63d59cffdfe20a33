"""What is done to an engine from outside: it is killed, its disk is full, its files are damaged. Knows processes and files, no prompts."""

import resource
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from random import Random

from engine.config import EngineConfig

NO_LIMIT = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


def has_disk_tier() -> bool:
    return "disk_dir" in {field.name for field in fields(EngineConfig)}


@dataclass(slots=True)
class Disk:
    """The directory of an engine's disk tier."""

    directory: Path

    def fill(self, pid: int) -> None:
        """From now on every file of that process that should grow can't."""
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))

    def free(self, pid: int) -> None:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, NO_LIMIT)

    def damage(self, random: Random) -> bool:
        """One file loses a bit, its end, or all of it. False if there is none yet."""
        files = sorted(self._files())
        if not files:
            return False
        file = random.choice(files)
        try:
            data = bytearray(file.read_bytes())
            match random.randrange(3):
                case 0 if data:
                    data[random.randrange(len(data))] ^= 1 << random.randrange(8)
                case 1 if data:
                    del data[random.randrange(len(data)) :]
                case _:
                    data.clear()
            file.write_bytes(data)
        except FileNotFoundError:  # the engine was quicker
            return False
        return True

    def _files(self) -> Iterator[Path]:
        return (path for path in self.directory.rglob("*") if path.is_file())
