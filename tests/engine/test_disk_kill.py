"""SIGKILL in the middle of writing, to a real process: the next one finds only what is whole, and that is right."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine.cache.disk_files import UNFINISHED, Kind
from tests.engine.fake_model import END, oracle
from tests.engine.rig import Rig
from tests.engine.test_disk import on_disk, prompt, tier_of

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("after_s", [0.3, 0.7])
def test_killed_in_mid_write(tmp_path: Path, after_s: float) -> None:
    command = [sys.executable, "-m", "tests.engine.disk_victim", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "ready\n"
        time.sleep(after_s)
        victim.kill()
        assert victim.wait() == -signal.SIGKILL
    rig = Rig(disk=tmp_path, disk_bytes=60_000, life="d")
    rig.settle()
    assert tier_of(rig).counters.disk_files_set_aside == 0
    assert on_disk(rig)
    assert not any(name.endswith(UNFINISHED) for kind in Kind for name in rig.files.sizes(kind))
    for kind in Kind:
        for name in rig.files.sizes(kind):
            rig.files.read(kind, name)
    for continuation, position in sorted(on_disk(rig))[:5]:
        number = int(continuation[1:])
        tokens = oracle_line(number)[:position] + prompt(3, 99)
        request = rig.ask(tokens, "again", max_tokens=2, save_tip=False)
        assert rig.started(request).reused_tokens == position
        assert rig.output(request) == oracle(tokens, 2)


def oracle_line(number: int) -> list[int]:
    """What the victim has of this number, its turn closed."""
    return [*prompt(100, number), *oracle(prompt(100, number), 4), END]
