"""Under a name: sessions, and the weaker names (cache keys, request ids, users) that may be shared."""

from identity_talk import (
    CONTINUES,
    NEW,
    SESSION,
    SIDE,
    TOOLS,
    Talk,
    call,
    output,
    said,
    told,
    turn,
    user,
)

from ninfer_proxy.types import Item


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
