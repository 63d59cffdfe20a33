"""A committed turn can be read back in every way that a later turn, a client or a person needs."""

from dataclasses import replace

import pytest
import pytest_asyncio
from storing import (
    HEAD,
    OTHER,
    TENANT,
    Chat,
    Clock,
    assistant,
    call,
    canonical,
    decision,
    digest,
    turn,
    user,
)

from ninfer_proxy.errors import InvalidRequest
from ninfer_proxy.items import item_from_raw
from ninfer_proxy.store import Store, StoredOutput
from ninfer_proxy.types import (
    ConversationId,
    LedgerEntry,
    LineRole,
    MessageItem,
    Reason,
    ResponseId,
    StoredLine,
)


@pytest_asyncio.fixture
async def store(tmp_path):
    opened = await Store.open(tmp_path / "data", clock=Clock())
    yield opened
    await opened.close()


async def test_a_line_is_found_by_scope_opening_and_name(store):
    first = turn("resp_1", [user("hi")], [assistant("hello", "msg_1")], scope="s1")
    await store.commit_turn(first)
    line = StoredLine(
        conversation=ConversationId("conv-1"),
        scope="s1",
        role=LineRole.MAIN,
        family="plain",
        head=HEAD,
        chain=first.chain,
        tip_response=ResponseId("resp_1"),
        last_used_at=first.completed_at,
    )
    assert await store.find_lines(TENANT, "s1", None) == (line,)
    assert await store.find_lines(TENANT, "", first.chain[0]) == (line,)
    assert await store.find_lines(TENANT, "", None, [ConversationId("conv-1")]) == (line,)
    assert await store.find_lines(TENANT, "s1", first.chain[0], ["conv-1"]) == (line,)
    assert await store.find_lines(TENANT, "", None) == ()
    assert await store.find_lines(OTHER, "s1", first.chain[0], ["conv-1"]) == ()


async def test_many_lines_newest_first_and_main_lines_never_pushed_out(store):
    await store.commit_turn(turn("resp_main", [user("hi")], [], scope="s", conversation="conv-0"))
    for n in range(1, 111):
        await store.commit_turn(
            turn(
                f"resp_{n}",
                [user("hi")],
                [],
                scope="s",
                conversation=f"conv-{n}",
                role=LineRole.SIDE,
                at=1_000_000.0 + n,
                slot=None,
            )
        )
    in_scope = await store.find_lines(TENANT, "s", None)
    assert len(in_scope) == 100
    assert in_scope[0].conversation == "conv-110"
    assert "conv-0" in {line.conversation for line in in_scope}
    opened = await store.find_lines(TENANT, "", in_scope[0].chain[0])
    assert [line.conversation for line in opened] == [f"conv-{n}" for n in range(110, 60, -1)]


async def test_history_gives_items_as_they_were_sent(store):
    prompt = [user("hi"), user("hi"), {"role": "user", "content": "hi"}]
    output = [{"id": "rs_1", "type": "reasoning", "summary": []}, assistant("yo", "msg_1")]
    await store.commit_turn(turn("resp_1", prompt, output))
    history = await store.history(TENANT, ResponseId("resp_1"))
    assert history.conversation == "conv-1"
    assert list(history.items) == [item_from_raw(raw) for raw in prompt + output]


async def test_replayed_history_adds_only_what_is_new(store):
    chat = Chat()
    for text in ("one", "two", "two", "three"):
        await store.commit_turn(chat.turn(text))
    shown = await store.show(ConversationId("conv-1"))
    assert (shown.items, shown.line_items) == (8, 8)
    history = await store.history(TENANT, ResponseId("resp_4"))
    assert [item.raw for item in history.items] == chat.history
    earlier = await store.history(TENANT, ResponseId("resp_2"))
    assert [item.raw for item in earlier.items] == chat.history[:4]


async def test_continuing_by_id_stores_nothing_twice(store):
    await store.commit_turn(turn("resp_1", [user("a")], [assistant("b", "msg_1")]))
    history = await store.history(TENANT, ResponseId("resp_1"))
    prompt = [item.raw for item in history.items] + [user("c")]
    await store.commit_turn(
        turn("resp_2", prompt, [assistant("d", "msg_2")], previous_response=ResponseId("resp_1"))
    )
    assert (await store.show(ConversationId("conv-1"))).items == 4


@pytest.mark.parametrize(
    ("tenant", "response"), [(OTHER, "resp_1"), (TENANT, "resp_unknown"), (TENANT, "resp_hidden")]
)
async def test_what_may_not_be_seen(store, tenant, response):
    await store.commit_turn(turn("resp_1", [user("a")], []))
    await store.commit_turn(turn("resp_hidden", [user("a")], [], retrievable=False))
    response = ResponseId(response)
    assert await store.history(tenant, response) is None
    assert await store.get_response(tenant, response) is None
    assert await store.input_items(tenant, response) is None
    assert await store.delete_response(tenant, response) is False
    assert (await store.explain(ResponseId("resp_hidden"))).retrievable is False


async def test_the_final_body_comes_back_whole(store):
    output = [call("call_1", '{"a": 1}', "fc_1"), assistant("done", "msg_1")]
    body = {
        "id": "resp_1",
        "instructions": "be brief" * 1000,
        "tools": [{"type": "function", "name": "f"}],
        "metadata": {"k": "v"},
        "output": output,
    }
    await store.commit_turn(turn("resp_1", [user("x")], output, body=body))
    assert await store.get_response(TENANT, ResponseId("resp_1")) == body
    bare = {**body, "id": "resp_2", "instructions": None, "tools": []}
    await store.commit_turn(turn("resp_2", [user("x")], output, body=bare))
    assert await store.get_response(TENANT, ResponseId("resp_2")) == bare


async def test_input_items_have_distinct_ids_and_pages(store):
    prompt = [user("a"), {**user("b"), "id": "given"}, {**user("c"), "id": "given"}, user("a")]
    await store.commit_turn(turn("resp_1", prompt, []))
    response = ResponseId("resp_1")
    page = await store.input_items(TENANT, response, None, 3, "asc")
    assert page.has_more
    rest = await store.input_items(TENANT, response, page.last_id, 3, "asc")
    assert not rest.has_more
    listed = [*page.data, *rest.data]
    assert [dict(raw, id=None) for raw in listed] == [dict(raw, id=None) for raw in prompt]
    ids = [raw["id"] for raw in listed]
    assert ids[1] == "given"
    assert len(set(ids)) == 4
    assert (page.first_id, rest.last_id) == (ids[0], ids[3])
    backwards = await store.input_items(TENANT, response)
    assert list(backwards.data) == listed[::-1]
    with pytest.raises(InvalidRequest, match="nowhere"):
        await store.input_items(TENANT, response, "nowhere", 3, "asc")


async def test_deleting_one_response_leaves_the_others(store):
    chat = Chat()
    await store.commit_turn(chat.turn("one"))
    await store.commit_turn(chat.turn("two"))
    assert await store.delete_response(TENANT, ResponseId("resp_1"))
    assert await store.get_response(TENANT, ResponseId("resp_1")) is None
    assert await store.delete_response(TENANT, ResponseId("resp_1")) is False
    kept = await store.history(TENANT, ResponseId("resp_2"))
    assert [item.raw for item in kept.items] == chat.history


async def test_deletion_erases_the_words(store, tmp_path):
    await store.commit_turn(
        turn(
            "resp_1",
            [user("the password is swordfish")],
            [assistant("noted: swordfish", "msg_1")],
            body={"id": "resp_1", "instructions": "swordfish too", "output": [1]},
            reasoning="swordfish, hm",
        )
    )
    await store.delete_response(TENANT, ResponseId("resp_1"))
    explained = await store.explain(ResponseId("resp_1"))
    assert explained.deleted
    assert explained.decision.difference is None
    assert await store.line_items(ConversationId("conv-1")) == ()
    await store.close()
    stored = b"".join(path.read_bytes() for path in (tmp_path / "data").iterdir())
    assert b"swordfish" not in stored


async def test_ledgers_come_back_by_what_was_said(store):
    named = digest("said")
    first = LedgerEntry(b"\1\0\0\0", 1, "tok")
    await store.commit_turn(turn("resp_1", [], [], output_digest=named, ledger=first))
    conversation = ConversationId("conv-1")
    stored = StoredOutput("because", first)
    assert await store.outputs(conversation, [named, digest("never")]) == {named: (stored,)}
    newer = LedgerEntry(b"\2\0\0\0", 0, "tok")
    await store.commit_turn(turn("resp_2", [], [], output_digest=named, ledger=newer))
    await store.commit_turn(turn("resp_3", [], [], output_digest=named, ledger=None))
    both = (stored, StoredOutput("because", newer), StoredOutput("because", None))
    assert await store.outputs(conversation, [named]) == {named: both}
    assert await store.outputs(ConversationId("conv-2"), [named]) == {}


async def test_equal_outputs_are_told_apart_by_what_stood_before(store):
    named, asked = digest("said"), [user(text) for text in ("one", "two", "three")]
    await store.commit_turn(turn("resp_1", asked[:1], [], output_digest=named))
    await store.commit_turn(turn("resp_2", asked, [], output_digest=named))
    found = (await store.outputs(ConversationId("conv-1"), [named]))[named]
    assert [output.behind for output in found] == [1, 3]
    digests = tuple(map(canonical, asked))
    assert [output.asked for output in found] == [digests[:1], digests[1:]]


async def test_ids_we_made_lead_back_to_their_conversation(store):
    output = [call("call_00_7", "{}", "fc_1"), assistant("x", "msg_1")]
    await store.commit_turn(turn("resp_1", [{**user("hi"), "id": "theirs"}], output))
    asked = ["call_00_7", "call007", "fc_1", "msg_1", "theirs", "unknown", "___", ""]
    found = {"call_00_7": "conv-1", "call007": "conv-1", "fc_1": "conv-1", "msg_1": "conv-1"}
    assert await store.minted(TENANT, asked) == found
    assert await store.minted(OTHER, asked) == {}
    assert await store.minted(TENANT, [f"call_{n}" for n in range(12_000)] + ["fc_1"]) == {
        "fc_1": "conv-1"
    }


async def test_references_are_resolved_within_the_tenant(store):
    await store.commit_turn(turn("resp_1", [user("hi")], [assistant("yo", "msg_1")]))
    listed = await store.input_items(TENANT, ResponseId("resp_1"))
    minted = listed.first_id
    found = await store.resolve_references(TENANT, ["msg_1", minted, "gone"])
    assert found == {
        "msg_1": item_from_raw(assistant("yo", "msg_1")),
        minted: item_from_raw(user("hi")),
    }
    assert isinstance(found[minted], MessageItem)
    assert await store.resolve_references(OTHER, ["msg_1"]) == {}


async def test_line_items_stand_beside_the_chain(store):
    prompt = [{"id": "rs_0", "type": "reasoning", "summary": []}, user("a")]
    record = turn("resp_1", prompt, [assistant("b", "msg_1")])
    await store.commit_turn(record)
    listed = await store.line_items(ConversationId("conv-1"))
    assert [item.text for item in listed] == ["a", "b"]
    assert len(listed) == len(record.chain)
    assert await store.line_items(ConversationId("conv-9")) == ()


async def test_a_broken_off_answer_is_kept_but_not_in_the_line(store):
    whole = turn("resp_1", [user("a")], [assistant("half an ans", "msg_1")])
    await store.commit_turn(replace(whole, status="cancelled", chain=whole.chain[:1]))
    listed = await store.line_items(ConversationId("conv-1"))
    assert [item.text for item in listed] == ["a"]
    kept = await store.history(TENANT, ResponseId("resp_1"))
    assert [item.text for item in kept.items] == ["a", "half an ans"]


async def test_of_two_turns_at_once_the_last_to_end_is_the_line(store):
    await store.commit_turn(turn("resp_1", [user("a")], [assistant("b", "msg_1")]))
    fork = turn("resp_2", [user("a")], [assistant("y", "msg_2")])
    await store.commit_turn(fork)
    (line,) = await store.find_lines(TENANT, "", fork.chain[0])
    assert (line.chain, line.tip_response) == (fork.chain, "resp_2")
    for response, answer in (("resp_1", "b"), ("resp_2", "y")):
        history = await store.history(TENANT, ResponseId(response))
        assert [item.text for item in history.items] == ["a", answer]


async def test_counters_and_the_last_reason(store):
    chat = Chat()
    await store.commit_turn(
        chat.turn("a", decision=decision(reason=Reason.NEW_CONVERSATION, prompt=50, reused=0))
    )
    await store.commit_turn(chat.turn("b", decision=decision(prompt=70, reused=60)))
    known = await store.conversation(ConversationId("conv-1"))
    assert (known.hits, known.tokens_prefilled, known.tokens_reused) == (1, 60, 60)
    assert known.last_reason == "new_conversation"
    changed = decision(reason=Reason.TOOLS_CHANGED, prompt=80, reused=10)
    await store.commit_turn(chat.turn("c", decision=changed))
    assert (await store.conversation(ConversationId("conv-1"))).last_reason == "tools_changed"


async def test_explanations_are_kept_beside_the_outcome(store):
    record = turn("resp_1", [user("a")], [assistant("b", "msg_1")], effort="low")
    await store.commit_turn(record)
    told = await store.explain(ResponseId("resp_1"))
    assert (told.decision, told.usage, told.effort) == (record.decision, record.usage, "low")
    assert told.plan["slot"] == record.plan.slot
    assert told.plan["retention"]["continuation"] == "cont-1"
    assert (told.prompt_items, told.output_items) == (1, 1)
    assert await store.explain(ResponseId("resp_0")) is None


async def test_recent_responses_and_a_conversation_shown(store):
    chat = Chat()
    for n in range(5):
        await store.commit_turn(chat.turn(str(n), at=1_000_000.0 + n))
    recent = await store.recent_responses(ConversationId("conv-1"), 2)
    assert [each.id for each in recent] == ["resp_5", "resp_4"]
    shown = await store.show(ConversationId("conv-1"))
    assert len(shown.responses) == 5
    assert await store.show(ConversationId("conv-9")) is None
    assert await store.recent_responses(ConversationId("conv-9"), 2) == ()


async def test_everything_survives_a_restart(store, tmp_path):
    chat = Chat()
    record = chat.turn("a")
    await store.commit_turn(record)
    await store.close()
    again = await Store.open(tmp_path / "data", clock=Clock())
    history = await again.history(TENANT, ResponseId("resp_1"))
    assert [item.raw for item in history.items] == chat.history
    assert (await again.find_lines(TENANT, "", record.chain[0]))[0].chain == record.chain
    await again.close()
