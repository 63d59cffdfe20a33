"""What columns hold reads back as what was put in, and stays small where histories grow."""

import json

from hypothesis import given
from hypothesis import strategies as st
from storing import checkpoint, decision, recorded, turn, user

from ninfer_proxy.items import call_key
from ninfer_proxy.store import codec
from ninfer_proxy.types import ContinuationId, ConversationId, Reason, Tier


@given(st.lists(st.integers(0, 1 << 40)))
def test_lists_of_any_numbers(numbers):
    assert codec.decode_list(codec.encode_list(numbers)) == numbers


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 300)), max_size=20))
def test_lists_made_of_runs(runs):
    numbers = [n for start, length in runs for n in range(start, start + length)]
    packed = codec.encode_list(numbers)
    assert codec.decode_list(packed) == numbers
    assert len(packed) <= 5 * len(runs)


def test_a_growing_history_is_one_run():
    assert len(codec.encode_list(range(100_000))) <= 4


def test_json_keeps_what_orjson_refuses():
    odd = {"half": "\ud83d", "big": 12345678901234567890123, "plain": ["ä", 1.5, None]}
    assert codec.from_json(codec.to_json(odd)) == odd
    assert codec.from_json(codec.to_json([user("x")])) == [user("x")]


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=9))
def test_json_of_anything(value):
    assert codec.from_json(codec.to_json(value)) == value


def test_json_of_dataclasses_either_way():
    value = {"plan": turn("r", [], []).plan, "big": 1 << 80}
    assert json.loads(codec.to_json(value))["plan"]["role"] == "main"


def test_raw_digest_ignores_the_order_of_keys_only():
    assert codec.raw_digest({"a": 1, "b": 2}) == codec.raw_digest({"b": 2, "a": 1})
    assert codec.raw_digest({"a": 1}) != codec.raw_digest({"a": 1, "id": "x"})
    assert codec.raw_digest({"a": 1}) != codec.raw_digest({"a": "1"})


def test_minted_ids_are_stable_and_tell_places_apart():
    conversation = ConversationId("conv-1")
    first = codec.minted_item_id("message", conversation, b"d", 0)
    assert first == codec.minted_item_id("message", conversation, b"d", 0)
    others = {
        codec.minted_item_id("message", conversation, b"d", 1),
        codec.minted_item_id("message", ConversationId("conv-2"), b"d", 0),
        codec.minted_item_id("reasoning", conversation, b"d", 0),
    }
    assert len(others | {first}) == 4
    assert first.startswith("msg_")


def test_call_key_is_what_clients_leave_of_a_call_id():
    assert call_key("call_00-60") == call_key("call0060")


def test_decisions_and_checkpoints_read_back():
    given_decision = decision(reason=Reason.EVICTED)
    assert codec.decision_from_json(codec.to_json(given_decision)) == given_decision
    held = (checkpoint(1), checkpoint(2, position=7, tier=Tier.HOST))
    assert (
        codec.checkpoints_from_json(codec.checkpoints_to_json(held), ContinuationId("cont-1"))
        == held
    )


def test_chains_join_and_split():
    chain = tuple(each.digest for each in recorded([user("a"), user("b")]))
    assert codec.split_digests(codec.join_digests(chain)) == chain
