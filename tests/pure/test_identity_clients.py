"""What single clients say of their runs: sub-agents that inherit a history, texts of OpenClaw, marks of Codex."""

from identity_talk import NEW, SIDE, TOOLS, Talk, call, output, said, told, turn, user

from ninfer_proxy.identity.resolve import identify


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
