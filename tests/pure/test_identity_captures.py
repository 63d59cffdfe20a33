"""Requests of real clients, replayed: each belongs to the conversation, role and kind that was worked out by hand for it.

The golden file holds one line a request: conversation, role, kind, what was noticed, family and scope. `PYTHONPATH=. python
tests/pure/test_identity_captures.py` writes it anew; read the difference before keeping it.
"""

import json
from pathlib import Path

import pytest
from replaying import replay

from tests import recordings

GOLDEN = Path(__file__).parent / "golden" / "identity.json"


@pytest.mark.parametrize("name", recordings.names())
def test_each_recorded_request_is_known_for_what_it_is(name: str) -> None:
    assert replay(name) == json.loads(GOLDEN.read_text())[name.split("/")[1]]


@pytest.mark.parametrize("name", recordings.names())
def test_a_main_line_is_never_moved_by_a_side_request(name: str) -> None:
    told = replay(name).values()
    mains = {line.split()[0] for line in told if line.split()[1] == "main"}
    sides = {line.split()[0] for line in told if line.split()[1] == "side"}
    assert not mains & sides


if __name__ == "__main__":
    told = {name.split("/")[1]: replay(name) for name in recordings.names()}
    GOLDEN.write_text(json.dumps(told, indent=1) + "\n")
