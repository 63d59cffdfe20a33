"""Requests of real clients, replayed: each belongs to the conversation, role and kind that was worked out by hand for it.

The golden file holds one line a request: conversation, role, kind, what was noticed, family and scope. `python
tests/pure/test_identity_captures.py` writes it anew; read the difference before keeping it.
"""

import json
from pathlib import Path

import pytest
from replaying import CAPTURES, replay

GOLDEN = Path(__file__).parent / "golden" / "identity.json"

pytestmark = pytest.mark.skipif(
    not CAPTURES.is_dir(), reason="the recorded requests (NINFER_SHARED) are not on this machine"
)


def recordings() -> list[Path]:
    return sorted(CAPTURES.glob("*/*.jsonl"))


@pytest.mark.parametrize("path", recordings(), ids=lambda path: path.stem)
def test_each_recorded_request_is_known_for_what_it_is(path: Path) -> None:
    assert replay(path) == json.loads(GOLDEN.read_text())[path.stem]


@pytest.mark.parametrize("path", recordings(), ids=lambda path: path.stem)
def test_a_main_line_is_never_moved_by_a_side_request(path: Path) -> None:
    told = replay(path).values()
    mains = {line.split()[0] for line in told if line.split()[1] == "main"}
    sides = {line.split()[0] for line in told if line.split()[1] == "side"}
    assert not mains & sides


if __name__ == "__main__":
    told = {path.stem: replay(path) for path in recordings()}
    GOLDEN.write_text(json.dumps(told, indent=1) + "\n")
