"""Requests of real clients, replayed: each belongs to the conversation, role and kind that was worked out by hand for it.

The golden file holds one line a request: conversation, role, kind, what was noticed, family and scope. `PYTHONPATH=. python
tests/pure/test_identity_captures.py` writes it anew; read the difference, and the requests it is about, before keeping it.
"""

import json
import re
from pathlib import Path

import pytest
from replaying import recorded_day, replay, told

from tests import recordings

GOLDEN = Path(__file__).parent / "golden" / "identity.json"


@pytest.mark.parametrize("name", recordings.names())
def test_each_recorded_request_is_known_for_what_it_is(name: str) -> None:
    assert replay(name) == json.loads(GOLDEN.read_text())[name.split("/")[1]]


@pytest.mark.parametrize("name", recordings.names())
def test_a_main_line_is_never_moved_by_a_side_request(name: str) -> None:
    lines = replay(name).values()
    mains = {line.split()[0] for line in lines if line.split()[1] == "main"}
    sides = {line.split()[0] for line in lines if line.split()[1] == "side"}
    assert not mains & sides


# Over one store a session is known from recordings before; where strings were shortened in one of the two, heads differ.
KNOWN_FROM_BEFORE = {
    (
        "f4_compaction",
        1,
    ): "side side_request side=compaction of=c changed=tools,instructions diverged",
    ("f4_compaction", 2): "side side_request side=compaction of=c diverged",
    ("f4_compaction", 3): "main continues changed=tools,instructions diverged compacted",
    ("f5_heartbeat", 5): "side side_request side=heartbeat changed=tools,instructions diverged",
    ("f5_heartbeat", 14): "main continues transient",
    ("g2_openai_heartbeat", 41): "side side_request side=recap diverged",
    ("g4_idle_ttl", 2): "side side_request side=recap diverged",
    ("h_sse_variants", 65): "side side_request side=recap diverged",
    ("c2_parallel", 2): "side side_request side=recap diverged",
    ("g5_openai_misc", 8): "side side_request side=recap diverged",
}
SESSIONS_OF_THE_DAY = 38
CONVERSATION = re.compile(r"\bc\d+\b")


def test_a_day_of_one_client_is_one_conversation_for_each_session() -> None:
    """All recordings of OpenClaw in the order they were made, over one store."""
    golden = json.loads(GOLDEN.read_text())
    day = recorded_day()
    mains: dict[str, set[str]] = {}
    for (name, row), (_, line) in zip(day, told([row for _, row in day]), strict=True):
        facts, _, scope = line.partition(" [")
        conversation, _, what = facts.partition(" ")
        alone = golden[name][str(row.n)].partition(" [")[0].partition(" ")[2]
        wanted = KNOWN_FROM_BEFORE.get((name, row.n), CONVERSATION.sub("c", alone))
        assert CONVERSATION.sub("c", what) == wanted, (name, row.n)
        if what.startswith("main"):
            mains.setdefault(scope, set()).add(conversation)
    assert {scope: some for scope, some in mains.items() if len(some) > 1} == {}
    assert len(mains) == len(set.union(*mains.values())) == SESSIONS_OF_THE_DAY


if __name__ == "__main__":
    new = {name.split("/")[1]: replay(name) for name in recordings.names()}
    GOLDEN.write_text(json.dumps(new, indent=1) + "\n")
