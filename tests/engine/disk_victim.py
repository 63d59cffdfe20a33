"""A process that writes checkpoints to disk as fast as it can until it's killed. Run by test_disk_kill with a directory as argument."""

import itertools
import sys
from pathlib import Path

from tests.engine.rig import Rig
from tests.engine.test_disk import prompt


def main(disk: Path) -> None:
    rig = Rig(disk=disk, disk_bytes=60_000)
    print("ready", flush=True)
    for number in itertools.count():
        rig.ask(prompt(100, number % 50), f"c{number % 50}", anchors=(30, 60))
        rig.settle()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
