"""The ladder: the response that is named comes first, and nothing is matched that wasn't offered."""

from hypothesis import given, settings
from hypothesis import strategies as st
from identity_talk import CONTINUES, FORKS, Talk, call, output, told, turn, user

from ninfer_proxy.identity.resolve import resolve
from ninfer_proxy.items import item_from_raw
from ninfer_proxy.types import (
    ConversationId,
    Head,
    Identity,
    ItemDigest,
    LineRole,
    MatchKind,
    StoredLine,
)


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
