"""What the engine process is started with. A shell script takes its place; no torch."""

import sys
from pathlib import Path

import pytest

from ninfer_proxy.backends.engine_process import spawn


@pytest.mark.parametrize("chosen", [None, "active"])
async def test_the_engines_threads_do_not_spin_unless_that_is_chosen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, chosen: str | None
) -> None:
    """torch reads the policy when it is loaded, so the process must begin with it."""
    seen, stand_in = tmp_path / "seen", tmp_path / "python"
    stand_in.write_text(f"#!/bin/sh\nenv > '{seen}'\n")
    stand_in.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stand_in))
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if chosen is not None:
        monkeypatch.setenv("OMP_WAIT_POLICY", chosen)
    life = await spawn({})
    assert await life.process.wait() == 0
    life.writer.close()
    assert f"OMP_WAIT_POLICY={chosen or 'passive'}" in seen.read_text().splitlines()
