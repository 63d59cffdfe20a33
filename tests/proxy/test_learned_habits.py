"""Clients' habits through the whole proxy: recorded OpenClaw requests teach the planner where to keep states, and a restart forgets nothing."""

from pathlib import Path

import pytest
from in_process import InProcess, in_process
from recorded_turns import Replay, Script, answers
from sqlalchemy.exc import IntegrityError
from storing import OTHER, TENANT, Chat, Clock

from ninfer_proxy.habits import Place, Tally
from ninfer_proxy.store.store import Store
from ninfer_proxy.types import AnchorKind, ResponseId
from tests.clients.replay import requests

LAST = Place("user", 1)
TOOL_STEP = 61
"""In e_completions: it ends with a tool's output and, once more, the passing note."""


async def play(proxy: InProcess, script: Script, capture: str, *numbers: int) -> list[int | None]:
    """Send a recording's requests (all, or those of the numbers); of each, how many messages of its prompt stood behind the
    anchor before what is taken back, None where it got none.
    """
    run, outputs = Replay(proxy, script), answers(f"openclaw/{capture}")
    for recorded in requests(f"openclaw/{capture}"):
        if recorded.number in numbers or not numbers:
            await run.send(recorded, outputs[recorded.number])
    return [
        next(
            (
                len(sent.prompt.messages) - anchor.messages
                for anchor in sent.anchors
                if anchor.kind is AnchorKind.TRANSIENT
            ),
            None,
        )
        for sent in proxy.backend.requests
    ]


async def test_a_note_behind_a_tool_is_learned_from_the_turns_before(tmp_path: Path) -> None:
    """Nothing about the request itself tells that its last item will be gone; the turns before it do."""
    script = Script()
    async with in_process(tmp_path / "unknown", script) as proxy:
        assert await play(proxy, script, "e_completions", TOOL_STEP) == [None]
    async with in_process(tmp_path / "known", script) as proxy:
        assert await play(proxy, script, "e_completions") == [1, 1, 1, 1, 1, 1]


async def test_what_was_learned_outlives_a_restart_and_serves_other_conversations(
    tmp_path: Path,
) -> None:
    script = Script()
    async with in_process(tmp_path, script) as proxy:
        await play(proxy, script, "a_nocont")
    async with in_process(tmp_path, script) as proxy:
        assert await play(proxy, script, "e_completions", TOOL_STEP) == [1]


async def test_a_client_that_keeps_its_items_gets_no_anchor_for_them(tmp_path: Path) -> None:
    """The same client under its provider's own name keeps the notes; the first turn can only be guessed at."""
    script = Script()
    async with in_process(tmp_path, script) as proxy:
        first, second, *others = await play(proxy, script, "g6_recommended", *range(25, 32))
    assert (first, second) == (1, 1)
    assert others == [None] * 5


async def test_the_answer_is_computed_as_the_next_turn_will_have_it(tmp_path: Path) -> None:
    """Four user turns and a tool call, and notes that go: once that is known, a user's next turn computes nothing twice."""
    script = Script()
    async with in_process(tmp_path, script) as proxy:
        await play(proxy, script, "a_nocont")
        prepared, sent = proxy.backend.prepared, proxy.backend.requests
        # After the first turn nothing is known; the tool call of the third is followed by its output at once.
        assert [each.request_id for each in prepared] == [
            f"{sent[turn].request_id}.next" for turn in (1, 3, 4)
        ]
        for each, following in ((prepared[0], sent[2]), (prepared[1], sent[4])):
            ahead = each.prompt.messages
            assert ahead == following.prompt.messages[: len(ahead)]
            new = [message.role for message in following.prompt.messages[len(ahead) :]]
            assert new == ["user", "user"]
        told = await proxy.store.explain(ResponseId(sent[4].request_id))
    assert told is not None
    assert (told.decision.reason, told.decision.source_kind) == ("cache_hit", "prompt_end")
    assert "computed beforehand" in told.decision.detail


async def test_nothing_is_computed_ahead_for_a_client_that_keeps_its_items(tmp_path: Path) -> None:
    script = Script()
    async with in_process(tmp_path, script) as proxy:
        await play(proxy, script, "g6_recommended", *range(25, 32))
        assert proxy.backend.prepared == []


async def test_habits_are_stored_with_their_turn_by_tenant_and_family(tmp_path: Path) -> None:
    store, chat = await Store.open(tmp_path, clock=Clock()), Chat()
    await store.commit_turn(chat.turn("a", seen={LAST: True}))
    assert await store.habits(TENANT, "plain") == {LAST: Tally(gone=1.0)}
    await store.commit_turn(chat.turn("b", seen={LAST: False}))
    await store.commit_turn(chat.turn("c"))
    learned = {LAST: Tally(gone=0.75, kept=1.0)}
    assert await store.habits(TENANT, "plain") == learned
    assert await store.habits(OTHER, "plain") == await store.habits(TENANT, "other") == {}
    await store.close()
    store = await Store.open(tmp_path, clock=Clock())
    assert await store.habits(TENANT, "plain") == learned
    await store.close()


async def test_a_turn_that_is_not_stored_teaches_nothing(tmp_path: Path) -> None:
    store, chat = await Store.open(tmp_path, clock=Clock()), Chat()
    assert await store.habits(TENANT, "plain") == {}
    once = chat.turn("a", seen={LAST: True})
    await store.commit_turn(once)
    with pytest.raises(IntegrityError, match="UNIQUE"):
        await store.commit_turn(once)
    assert await store.habits(TENANT, "plain") == {LAST: Tally(gone=1.0)}
    await store.close()
