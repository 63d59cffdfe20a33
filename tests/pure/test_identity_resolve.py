"""The ladder: which conversation a request belongs to, case by case, against a small line store."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replaying import Lines

from ninfer_proxy.identity.resolve import identify, resolve
from ninfer_proxy.items import item_from_raw
from ninfer_proxy.types import (
    ClientEvidence,
    ConversationId,
    Head,
    Identity,
    Item,
    ItemDigest,
    LineRole,
    Match,
    MatchKind,
    ResponseId,
    StoredLine,
    TenantKey,
    ToolSpec,
    Turn,
)

AGENT = "You help with a small code base."
TOOLS = tuple(ToolSpec(name, None, {}) for name in ("read", "run"))
SESSION = {"session-id": "s1"}
CONTINUES, NEW = (MatchKind.CONTINUES, LineRole.MAIN), (MatchKind.NEW, LineRole.MAIN)
SIDE, FORKS = (MatchKind.SIDE, LineRole.SIDE), (MatchKind.FORKS, LineRole.MAIN)


def user(text: str) -> Item:
    return item_from_raw({"type": "message", "role": "user", "content": text})


def said(text: str) -> Item:
    return item_from_raw({"type": "message", "role": "assistant", "content": text})


def call(call_id: str, arguments: str = "{}") -> Item:
    raw = {"type": "function_call", "call_id": call_id, "name": "run", "arguments": arguments}
    return item_from_raw(raw)


def output(call_id: str, text: str) -> Item:
    return item_from_raw({"type": "function_call_output", "call_id": call_id, "output": text})


def turn(
    *items: Item,
    headers: Mapping[str, str] | None = None,
    instructions: str | None = AGENT,
    tools: Sequence[ToolSpec] = TOOLS,
    previous: str | None = None,
    **client: Any,
) -> Turn:
    return Turn(
        tenant=TenantKey("t"),
        client=ClientEvidence(headers=headers or {}, **client),
        model="demo",
        items=items,
        received_at=0.0,
        instructions=instructions,
        tools=tuple(tools),
        previous_response_id=ResponseId(previous) if previous else None,
    )


class Talk:
    """A client that asks and is answered, with the store behind it."""

    def __init__(self) -> None:
        self.store = Lines()
        self.last: Match | None = None

    def ask(
        self, request: Turn, *answer: Item, response: str | None = None
    ) -> tuple[ConversationId, Match]:
        """The conversation that this finished turn went to, and its match."""
        items, identity, match = self.store.match(request)
        conversation = self.store.commit(
            response, items, identity, match, answer or (said(f"answer {self.store.clock}"),)
        )
        return conversation, match


def told(match: Match) -> tuple[MatchKind, LineRole]:
    return match.kind, match.role


# --- whole history again, no ids ---------------------------------------------------------------


def test_a_history_that_grows_is_one_conversation() -> None:
    talk, history = Talk(), []
    for number in range(8):
        history.append(user(f"question {number}"))
        conversation, match = talk.ask(turn(*history), said(f"answer {number}"))
        history.append(said(f" answer {number}\n"))
        assert conversation == "c1"
        assert told(match) == (CONTINUES if number else NEW)
        assert match.divergence is None
        assert match.known_items == max(0, 2 * number)


def test_tool_calls_may_be_spelled_otherwise_and_reasoning_dropped() -> None:
    talk = Talk()
    thought = item_from_raw({"type": "reasoning", "id": "rs_1", "summary": []})
    talk.ask(turn(user("Run it.")), thought, call("call_1", '{ "cmd" : "ls" }'))
    history = (user("Run it."), call("call1", '{"cmd":"ls"}'), output("call1", "a.c"))
    assert talk.ask(turn(*history), said("Done."))[1].divergence is None
    _, match = talk.ask(turn(*history, said("Done."), user("Thanks.")))
    assert told(match) == CONTINUES
    assert match.shared == 4


def test_equal_openings_are_told_apart_once_they_differ() -> None:
    talk = Talk()
    talk.ask(turn(user("Hi")), said("Hello!"))
    talk.ask(turn(user("Hi"), said("Hello!"), user("Cats?")), said("Yes."))
    second, match = talk.ask(turn(user("Hi")), said("Good day."))
    assert told(match) == NEW
    first, match = talk.ask(
        turn(user("Hi"), said("Hello!"), user("Cats?"), said("Yes."), user("?"))
    )
    assert (first, told(match)) == ("c1", CONTINUES)
    again, _ = talk.ask(turn(user("Hi"), said("Good day."), user("Dogs?")))
    assert again == second == "c2"


def test_asking_the_one_question_again_stays_in_place() -> None:
    talk = Talk()
    talk.ask(turn(user("Name a bird.")), said("Owl"))
    conversation, match = talk.ask(turn(user("Name a bird.")), said("Owl"))
    assert (conversation, told(match)) == ("c1", CONTINUES)
    assert match.divergence is not None
    assert match.divergence.item_index is None


def test_an_edit_rewinds_the_same_conversation() -> None:
    talk = Talk()
    start = (user("Start."), said("Ok."))
    talk.ask(turn(start[0]), start[1])
    talk.ask(turn(*start, user("Path A.")), said("A!"))
    conversation, match = talk.ask(turn(*start, user("Path B.")), said("B!"))
    assert (conversation, told(match)) == ("c1", CONTINUES)
    assert match.divergence is not None
    assert (match.divergence.stored_index, match.divergence.item_index) == (2, 2)
    assert match.known_items == 2
    back, _ = talk.ask(turn(*start, user("Path A."), said("A!"), user("On.")))
    assert back == "c1"


def test_other_instructions_over_the_same_history_follow_the_line() -> None:
    talk = Talk()
    talk.ask(turn(user("Hi")), said("Hello!"))
    clock = f"{AGENT} It is 10:12."
    conversation, match = talk.ask(
        turn(user("Hi"), said("Hello!"), user("Time?"), instructions=clock)
    )
    assert (conversation, told(match)) == ("c1", CONTINUES)
    assert match.head_changed == ("instructions",)


def test_the_same_question_to_another_agent_is_another_conversation() -> None:
    talk = Talk()
    talk.ask(turn(user("Hi")), said("Hello!"))
    talk.store.running(ConversationId("c1"), 1)
    assert told(talk.ask(turn(user("Hi"), instructions="You are a poet."))[1]) == NEW


def test_a_title_job_without_ids_has_a_side_line() -> None:
    talk = Talk()
    talk.ask(turn(user("Plan a trip")), said("Sure."))
    job = turn(
        user("Give this chat a title of at most five words.\n\nUSER: Plan a trip"),
        instructions="You name chats.",
        tools=(),
    )
    side, match = talk.ask(job, said("A trip"))
    assert told(match) == SIDE
    assert match.side_kind == "title"
    conversation, match = talk.ask(turn(user("Plan a trip"), said("Sure."), user("By train.")))
    assert (conversation, match.head_changed) == ("c1", ())
    assert talk.ask(job)[0] == side


def test_what_only_looked_like_a_title_job_becomes_a_conversation() -> None:
    talk = Talk()
    ask = user("Write a title for a talk about a conversation of two cats.")
    side, match = talk.ask(turn(ask, tools=()), said("Two cats"))
    assert told(match) == SIDE
    conversation, match = talk.ask(turn(ask, said("Two cats"), user("Shorter."), tools=()))
    assert (conversation, told(match)) == (side, CONTINUES)


# --- sessions ----------------------------------------------------------------------------------


def test_a_session_keeps_its_conversation_whatever_it_asks() -> None:
    talk = Talk()
    for text in ("Warm-up", "Find the failing test.", "Say 3"):
        conversation, match = talk.ask(turn(user(text), headers=SESSION))
        assert conversation == "c1"
        assert not match.compacted


def test_another_head_in_a_session_is_a_side_line_of_its_own() -> None:
    talk = Talk()
    talk.ask(turn(user("Work."), headers=SESSION), said("Ok."))
    sides = []
    for text in ("first check", "second check"):
        side, match = talk.ask(turn(user(text), headers=SESSION, instructions="Checker.", tools=()))
        assert told(match) == SIDE
        assert match.parent == "c1"
        sides.append(side)
    assert sides == ["c2", "c2"]
    conversation, match = talk.ask(turn(user("Work."), said("Ok."), user("On."), headers=SESSION))
    assert (conversation, match.divergence, match.head_changed) == ("c1", None, ())


def test_an_unknown_run_that_carries_only_part_of_the_history_is_a_side_line() -> None:
    talk = Talk()
    history = (user("Work."), said("Ok."), user("More."), said("Yes."))
    talk.ask(turn(*history, user("Go."), headers=SESSION), said("Went."))
    _, match = talk.ask(turn(*history, user("Rate it."), headers=SESSION, instructions="Judge."))
    assert told(match) == SIDE
    last = (user("Go."), said("Went."), user("Suggest three follow-ups."))
    _, match = talk.ask(turn(*last, headers=SESSION, instructions="Suggester.", tools=()))
    assert told(match) == SIDE


def test_a_new_day_in_the_instructions_moves_with_the_line() -> None:
    talk = Talk()
    talk.ask(turn(user("Hi"), headers=SESSION), said("Hello!"))
    tomorrow = turn(
        user("Hi"), said("Hello!"), user("Morning!"), headers=SESSION, instructions="Day 2"
    )
    conversation, match = talk.ask(tomorrow, said("Morning."))
    assert (conversation, match.head_changed) == ("c1", ("instructions",))
    more = (user("Hi"), said("Hello!"), user("Morning!"), said("Morning."), user("So?"))
    _, match = talk.ask(turn(*more, headers=SESSION, instructions="Day 2"))
    assert (told(match), match.head_changed) == (CONTINUES, ())


def test_a_title_job_that_comes_first_does_not_take_the_session() -> None:
    talk = Talk()
    unmarked = turn(user("Hi there"), headers=SESSION, instructions="Three words.", tools=())
    talk.ask(unmarked, said("A greeting"))
    main, match = talk.ask(turn(user("Hi there"), headers=SESSION), said("Hello!"))
    assert told(match) == NEW
    conversation, match = talk.ask(
        turn(user("Hi there"), said("Hello!"), user("Go."), headers=SESSION)
    )
    assert (conversation, told(match)) == (main, CONTINUES)


def test_a_side_line_that_a_user_goes_on_with_becomes_a_main_line() -> None:
    talk = Talk()
    talk.ask(turn(user("Hi"), headers=SESSION, instructions="Chat."), said("Hello!"))
    side, match = talk.ask(turn(user("Bugs?"), headers=SESSION), said("Two."))
    assert told(match) == SIDE
    conversation, match = talk.ask(turn(user("Bugs?"), said("Two."), user("?"), headers=SESSION))
    assert (conversation, told(match)) == (side, CONTINUES)
    conversation, _ = talk.ask(
        turn(user("Hi"), said("Hello!"), user("?"), headers=SESSION, instructions="Chat.")
    )
    assert conversation == "c1"


def test_parallel_workers_in_a_session_have_lines_of_their_own() -> None:
    talk = Talk()
    talk.ask(turn(user("Split."), headers=SESSION), said("Ok."))
    worker = {"headers": SESSION, "instructions": "Worker.", "tools": TOOLS[:1]}
    first, _ = talk.ask(turn(user("Part 1"), **worker), call("a"))
    talk.store.running(first, 1)
    second, match = talk.ask(turn(user("Part 2"), **worker), call("b"))
    assert (told(match), first != second) == (SIDE, True)
    again, _ = talk.ask(turn(user("Part 1"), call("a"), output("a", "x"), **worker))
    assert again == first


def test_two_sessions_are_two_conversations_even_with_equal_content() -> None:
    talk = Talk()
    for session in ("x", "y"):
        history: list[Item] = []
        for number in range(3):
            history.append(user(f"q{number}"))
            conversation, _ = talk.ask(
                turn(*history, headers={"session-id": session}), said(f"a{number}")
            )
            history.append(said(f"a{number}"))
            assert conversation == ("c1" if session == "x" else "c2")


def test_a_renamed_session_keeps_its_conversation_but_a_fork_leaves_it() -> None:
    talk = Talk()
    history = (user("Hi"), said("Hello!"))
    talk.ask(turn(history[0], headers={"session-id": "a"}), history[1])
    renamed = turn(*history, user("On."), headers={"session-id": "b"})
    assert talk.ask(renamed, said("Went on."))[0] == "c1"
    stayed = turn(*history, user("Stay."), headers={"session-id": "a"})
    conversation, match = talk.ask(stayed)
    assert (conversation, told(match)) == ("c2", NEW)


def test_a_heartbeat_session_is_a_side_line_of_the_session_it_is_named_after() -> None:
    talk = Talk()
    talk.ask(turn(user("Plan."), headers={"session-id": "main"}), said("Ok."))
    beat = turn(
        user("Job 7 ended."),
        headers={"session-id": "main:heartbeat"},
        instructions="Heartbeat worker.",
        tools=(),
    )
    _, match = talk.ask(beat)
    assert (told(match), match.side_kind, match.parent) == (SIDE, "heartbeat", "c1")


# --- weaker names ------------------------------------------------------------------------------


def test_a_request_id_is_no_session_but_a_cache_key_is_a_hint() -> None:
    talk, history = Talk(), []
    for number in range(4):
        history.append(user(f"turn {number}"))
        request = turn(
            *history,
            headers={"x-client-request-id": f"req-{number}"},
            prompt_cache_key="conv-77",
        )
        conversation, _ = talk.ask(request, said(f"a{number}"))
        history.append(said(f"a{number}"))
        assert conversation == "c1"


def test_a_shared_cache_key_does_not_merge_conversations() -> None:
    talk = Talk()
    first, _ = talk.ask(turn(user("Cats?"), prompt_cache_key="app"), said("Yes."))
    second, match = talk.ask(turn(user("Dogs?"), prompt_cache_key="app"), said("No."))
    assert (told(match), first != second) == (NEW, True)
    worker, match = talk.ask(
        turn(user("Part 1"), prompt_cache_key="app", instructions="Worker.", tools=TOOLS[:1])
    )
    assert told(match) == SIDE
    assert worker not in (first, second)


def test_a_user_is_no_session() -> None:
    talk = Talk()
    first, _ = talk.ask(turn(user("Cats?"), user="bob"), said("Yes."))
    poet = turn(user("Rhyme!"), user="bob", instructions="Poet.")
    second, match = talk.ask(poet, said("Lime."))
    assert told(match) == NEW
    assert talk.ask(turn(user("Cats?"), said("Yes."), user("?"), user="bob"))[0] == first
    _, match = talk.ask(turn(user("Cats?"), user="eve"))
    assert told(match) == NEW
    assert second != first


# --- previous_response_id ----------------------------------------------------------------------


def test_the_previous_response_names_the_line() -> None:
    talk = Talk()
    talk.ask(turn(user("Read a.c")), call("c1"), response="r1")
    _, match = talk.ask(turn(output("c1", "int main;"), previous="r1"), response="r2")
    assert (told(match), match.divergence) == (CONTINUES, None)
    _, match = talk.ask(turn(user("Which tool?"), previous="r2", instructions=None))
    assert (match.conversation, match.head_changed) == ("c1", ("instructions",))


def test_an_older_response_rewinds_and_a_running_turn_forks() -> None:
    talk = Talk()
    talk.ask(turn(user("1")), response="r1")
    talk.ask(turn(user("2"), previous="r1"), response="r2")
    _, match = talk.ask(turn(user("other 2"), previous="r1"))
    assert told(match) == CONTINUES
    assert match.divergence is not None
    talk.store.running(ConversationId("c1"), 1)
    _, match = talk.ask(turn(user("3"), previous="r2"))
    assert told(match) == FORKS


def test_a_warm_up_with_only_a_head_is_carried_on() -> None:
    talk = Talk()
    base = item_from_raw({"type": "message", "role": "developer", "content": "Base."})
    more = item_from_raw({"type": "message", "role": "developer", "content": "More."})
    warm = turn(base, headers={"thread-id": "th"}, instructions=None, user_agent="codex_exec/0.1")
    items, identity, match = talk.store.match(warm)
    talk.store.commit("r1", items, identity, match, ())
    following = turn(more, user("Hi"), previous="r1", instructions=None)
    _, match = talk.ask(following)
    assert (told(match), match.head_changed, match.divergence) == (CONTINUES, (), None)


# --- transient items, compaction, sub-agents ---------------------------------------------------


def test_an_item_that_vanishes_is_transient_even_some_turns_later() -> None:
    talk = Talk()
    note = user("<context>nothing runs</context>")
    talk.ask(turn(user("1"), note, headers=SESSION), said("a1"))
    later = (user("1"), said("a1"), user("2"), said("lost"), user("3"), note)
    _, match = talk.ask(turn(*later, headers=SESSION), said("a3"))
    assert match.divergence is not None
    assert (match.divergence.transient, match.divergence.stored_index) == (True, 1)
    assert match.divergence.item_index == 1
    assert (match.shared, match.known_items) == (2, 2)
    two_gone = (user("1"), said("a1"), user("2"), said("lost"), user("3"), said("a3"), user("4"))
    _, match = talk.ask(turn(*two_gone, headers=SESSION))
    assert match.divergence is not None
    assert match.divergence.transient


def test_a_shortened_tool_output_is_an_edit() -> None:
    talk = Talk()
    head = (user("Build."), call("a"))
    talk.ask(turn(*head, output("a", "long " * 50), user("Sum up."), headers=SESSION), said("Ok."))
    shortened = (*head, output("a", "long"), user("Sum up."), said("Ok."), user("More."))
    _, match = talk.ask(turn(*shortened, headers=SESSION))
    assert match.divergence is not None
    assert (match.divergence.transient, match.compacted) == (False, False)
    assert (match.divergence.item_index, match.known_items) == (2, 5)


def long_talk(talk: Talk, **known: Any) -> list[Item]:
    history: list[Item] = []
    for number in range(4):
        history.append(user(f"q{number}"))
        talk.ask(turn(*history, **known), said(f"a{number}"))
        history.append(said(f"a{number}"))
    return history


@pytest.mark.parametrize(
    "opening",
    [
        "The conversation history before this point was compacted into the following summary:\n",
        "This session is being continued from a previous conversation that ran out of context.",
        "Summary of earlier work: four questions.",
    ],
)
def test_a_summary_in_place_of_the_history_is_a_compaction(opening: str) -> None:
    talk = Talk()
    long_talk(talk, headers=SESSION)
    conversation, match = talk.ask(turn(user(opening), user("Go on."), headers=SESSION))
    assert (conversation, match.compacted, match.shared) == ("c1", True, 0)


def test_a_kept_end_without_the_rest_is_a_compaction() -> None:
    talk = Talk()
    history = long_talk(talk, headers=SESSION)
    kept = (user("What was before: questions."), *history[-2:], user("Go on."))
    _, match = talk.ask(turn(*kept, headers=SESSION))
    assert match.compacted
    assert match.known_items == 3


def test_ids_that_come_back_find_a_compacted_conversation() -> None:
    talk = Talk()
    talk.ask(turn(user("Do it.")), call("call_77"))
    history = (user("Do it."), call("call_77"), output("call_77", "done"))
    talk.ask(turn(*history), said("It is done."))
    cut = (user("Notes: it was begun."), call("call_77"), output("call_77", "done"), user("And?"))
    conversation, match = talk.ask(turn(*cut))
    assert (conversation, told(match)) == ("c1", CONTINUES)
    assert "came back" in match.evidence[0]


def test_a_sub_agent_that_inherits_the_history_has_its_own_line() -> None:
    talk = Talk()
    parent = {"headers": {"thread-id": "p"}, "user_agent": "codex_cli/1"}
    talk.ask(turn(user("Spawn."), **parent), call("s1"), response="r1")
    child = {
        "headers": {"thread-id": "k", "x-openai-subagent": "spawn"},
        "user_agent": "codex_cli/1",
    }
    inherited = (user("Spawn."), call("s1"), output("s1", "forked"), user("Your task."))
    conversation, match = talk.ask(turn(*inherited, **child))
    assert (conversation, told(match), match.compared_with) == ("c2", NEW, "c1")
    identity = identify(turn(*inherited, **child), inherited)
    assert identity.is_subagent
    following = (user("Spawn."), call("s1"), output("s1", "ok"))
    assert talk.ask(turn(*following, **parent))[0] == "c1"


def test_openclaw_is_known_by_its_texts_where_it_names_nothing() -> None:
    runtime = (
        "You are a personal assistant running inside OpenClaw.\nRuntime: agent=main | sessionId={}"
    )
    talk = Talk()
    plain = {"instructions": runtime.format("conv-1 | host=h"), "headers": {}}
    talk.ask(turn(user("[Mon 2026-11-30 06:11 UTC] Hi"), **plain), said("Hello!"))
    flush = turn(
        user("[Mon 2026-11-30 06:11 UTC] Hi"),
        said("Hello!"),
        user("Pre-compaction memory flush. Store durable memories."),
        instructions=runtime.format("internal-session-effects-8a10 | host=h"),
        tools=TOOLS[:1],
    )
    _, match = talk.ask(flush)
    assert (told(match), match.side_kind, match.parent) == (SIDE, "memory_flush", "c1")
    configured = "Look around.\nCurrent time: Monday - 6:20 AM (UTC)\nReference UTC: 2026-11-30"
    _, match = talk.ask(
        turn(user("[Mon 2026-11-30 06:11 UTC] Hi"), said("Hello!"), user(configured), **plain)
    )
    assert (told(match), match.side_kind, match.parent) == (SIDE, "event", "c1")


def test_the_marks_of_codex_are_read_from_its_metadata() -> None:
    stated = {"x-codex-turn-metadata": '{"request_kind":"compaction"}', "thread-id": "p"}
    talk = Talk()
    talk.ask(turn(user("Hi"), headers={"thread-id": "p"}, user_agent="codex_cli/1"), said("Ok."))
    asked = turn(user("Hi"), said("Ok."), user("Sum up."), headers=stated, user_agent="codex_cli/1")
    _, match = talk.ask(asked)
    assert (told(match), match.side_kind, match.parent) == (SIDE, "compaction", "c1")
    assert (match.compared_with, match.shared) == ("c1", 2)


# --- for all -----------------------------------------------------------------------------------


digest_bytes = st.integers(0, 3).map(lambda number: ItemDigest(bytes([number]) * 16))
heads = st.builds(Head, tools=digest_bytes, instructions=digest_bytes)
scopes = st.sampled_from(["", "session:a", "session:b", "key:a", "user:a", "side:generic:title"])
chains = st.lists(digest_bytes, max_size=6).map(tuple)
stored_lines = st.builds(
    StoredLine,
    conversation=st.integers(0, 9).map(lambda number: ConversationId(f"c{number}")),
    scope=scopes,
    role=st.sampled_from(LineRole),
    family=st.just("generic"),
    head=heads,
    chain=chains,
    tip_response=st.none(),
    last_used_at=st.floats(0, 9),
    in_flight=st.integers(0, 2),
    side_kind=st.sampled_from([None, "title"]),
)
identities = st.builds(
    Identity,
    scope=scopes,
    scope_evidence=st.just("header"),
    family=st.just("generic"),
    head=heads,
    head_items=st.integers(0, 2),
    digests=st.lists(st.none() | digest_bytes, max_size=7).map(tuple),
    side_kind=st.sampled_from([None, None, "title"]),
    is_subagent=st.booleans(),
)


@settings(max_examples=60, deadline=None)
@given(
    identities,
    st.lists(stored_lines, max_size=6, unique_by=lambda line: line.conversation),
    st.none() | stored_lines,
    st.lists(st.integers(0, 99).map(lambda number: ConversationId(f"c{number}")), max_size=3),
)
def test_only_what_was_offered_is_ever_matched(
    identity: Identity,
    lines: list[StoredLine],
    parent: StoredLine | None,
    minted: list[ConversationId],
) -> None:
    items = [user(str(number)) for number in range(identity.head_items + len(identity.digests))]
    match = resolve(turn(*items), identity, lines, parent, minted)
    offered = {line.conversation for line in lines} | {parent.conversation if parent else None}
    assert {match.conversation, match.parent, match.compared_with} <= {None, *offered} | {
        line.parent for line in lines
    }
    assert (match.conversation is None) if match.kind is MatchKind.NEW else True
    assert (match.role is LineRole.SIDE) == (match.kind is MatchKind.SIDE)
    assert 0 <= match.shared <= len(identity.chain)
    assert match.known_items <= len(items)
    assert match.evidence


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("xyz"), st.booleans(), st.text(max_size=8)),
        min_size=1,
        max_size=25,
    ),
    st.booleans(),
)
def test_histories_that_only_grow_always_continue(
    steps: list[tuple[str, bool, str]], named: bool
) -> None:
    """Several clients take turns, each resending its whole history: each stays in its one conversation."""
    talk = Talk()
    histories: dict[str, list[Item]] = {}
    homes: dict[str, ConversationId] = {}
    for number, (client, runs_tool, text) in enumerate(steps):
        history = histories.setdefault(client, [user(f"I am {client}.")])
        history.append(user(text))
        answer = call(f"call_{number}") if runs_tool else said(f"answer {number}")
        headers = {"session-id": client} if named else {}
        conversation, match = talk.ask(turn(*history, headers=headers), answer)
        assert told(match) == (CONTINUES if client in homes else NEW)
        assert homes.setdefault(client, conversation) == conversation
        assert match.divergence is None
        history.append(answer)
        if runs_tool:
            history.append(output(f"call_{number}", text))
