"""Turns over a scripted backend: who gets which slot, what is stored, what a fault leaves behind."""

import asyncio
from pathlib import Path

import httpx
import pytest
from in_process import InProcess, answer_of, decision, in_process, user

from engine.api import ContinuationId, Generate
from ninfer_proxy.backends.scripted import Performance, call, reasoning, text
from ninfer_proxy.errors import StoreFull

HEAD = "You help with a small code base. " + "Rules apply. " * 200
OTHER_HEAD = "You write titles. " + "Be brief. " * 200


async def converse(proxy: InProcess, texts: list[str], key: str = "k") -> list[dict[str, str]]:
    history: list[dict[str, object]] = []
    decisions = []
    for each in texts:
        history.append(user(each))
        response = await proxy.create(key, instructions=HEAD, input=history)
        assert response.status_code == 200, response.text
        decisions.append(decision(response))
        history += answer_of(response)
    return decisions


async def test_a_conversation_keeps_its_slot(tmp_path: Path) -> None:
    async with in_process(tmp_path) as proxy:
        decisions = await converse(proxy, ["one", "two", "three", "four"])
        assert [each["reason"] for each in decisions] == [
            "new_conversation",
            *["cache_hit"] * 3,
        ]
        assert len({each["slot"] for each in decisions}) == 1
        (slot,) = await proxy.slots()
        assert slot["hits"] == 3


async def test_the_same_first_request_twice_at_once_is_one_conversation(tmp_path: Path) -> None:
    def slow(_: Generate) -> Performance:
        return Performance((text("one "), text("two")), pause_s=0.1)

    async with in_process(tmp_path, slow) as proxy:
        same = [proxy.create(instructions=HEAD, input=[user("go")]) for _ in range(2)]
        first, second = await asyncio.gather(*same)
        assert first.status_code == second.status_code == 200
        assert first.json()["id"] != second.json()["id"]
        assert decision(first)["conversation"] == decision(second)["conversation"]
        assert len(await proxy.slots()) == 1


async def test_two_turns_of_one_conversation_at_once_both_survive(tmp_path: Path) -> None:
    def slow(request: Generate) -> Performance:
        said = request.prompt.messages[-1].text
        return Performance((text("I heard "), text(said)), pause_s=0.05)

    async with in_process(tmp_path, slow) as proxy:
        first = await proxy.create(instructions=HEAD, input=[user("start")])
        left, right = await asyncio.gather(
            *(
                proxy.create(
                    instructions=HEAD, input=[user(word)], previous_response_id=first.json()["id"]
                )
                for word in ("left", "right")
            )
        )
        assert {decision(left)["match"], decision(right)["match"]} == {"continues", "forks"}
        assert len(await proxy.slots()) == 1
        for branch, word in ((left, "left"), (right, "right")):
            following = await proxy.create(
                instructions=HEAD, input=[user("on")], previous_response_id=branch.json()["id"]
            )
            listed = await proxy.http.get(
                f"/v1/responses/{following.json()['id']}/input_items?order=asc",
                headers={"authorization": "Bearer k"},
            )
            texts = [item["content"] for item in listed.json()["data"]]
            assert word in str(texts)
        assert len(await proxy.slots()) == 1


async def test_a_side_request_leaves_the_main_line_alone(tmp_path: Path) -> None:
    session = {"session-id": "s-1"}
    async with in_process(tmp_path) as proxy:
        history = [user("Let us begin.")]
        first = await proxy.create(instructions=HEAD, input=history, headers=session)
        side = await proxy.create(
            instructions=OTHER_HEAD, input=[user("A title please.")], headers=session
        )
        history += [*answer_of(first), user("And on.")]
        second = await proxy.create(instructions=HEAD, input=history, headers=session)
        assert decision(side)["match"] == "side_request"
        assert decision(side)["conversation"] != decision(first)["conversation"]
        assert decision(second)["reason"] == "cache_hit"
        assert decision(second)["slot"] == decision(first)["slot"]
        assert sorted(slot["class"] for slot in await proxy.slots()) == ["recent", "side"]


async def test_the_slot_cap_evicts_the_least_recently_used(tmp_path: Path) -> None:
    async with in_process(tmp_path, slots__count=2) as proxy:
        for name in ("first", "second", "third"):
            await converse(proxy, [f"I am {name}.", "Go on."], key=name)
        kept = await proxy.slots()
        assert len(kept) == 2
        again = await converse(proxy, ["I am first.", "Go on."], key="first")
        assert again[0]["conversation"] not in {slot["conversation"] for slot in kept}
        assert len(await proxy.slots()) == 2


async def test_a_pinned_slot_is_not_evicted(tmp_path: Path) -> None:
    async with in_process(tmp_path, slots__count=1) as proxy:
        (first,) = await converse(proxy, ["Keep me."], key="a")
        pinned = await proxy.http.post(
            f"/admin/conversations/{first['conversation']}/pin",
            headers={"authorization": "Bearer admin"},
            json={"minutes": 5},
        )
        assert pinned.status_code == 200
        await converse(proxy, ["Hello."], key="b")
        assert first["conversation"] in {slot["conversation"] for slot in await proxy.slots()}


async def test_use_renews_a_pin_but_grants_none(tmp_path: Path) -> None:
    """Pinned for a minute, then used: the lease is a whole one again. Unpinned, then used: it stays ended."""
    async with in_process(tmp_path, slots__pin_s=3600.0) as proxy:
        first = await proxy.create(instructions=HEAD, input=[user("Keep me.")])
        pin = f"/admin/conversations/{decision(first)['conversation']}/pin"
        admin = {"authorization": "Bearer admin"}
        short = (await proxy.http.post(pin, headers=admin, json={"minutes": 1})).json()
        second = await proxy.create(input=[user("On.")], previous_response_id=first.json()["id"])
        (slot,) = await proxy.slots()
        assert slot["pinned_until"] > short["pinned_until"] + 3000
        await proxy.http.delete(pin, headers=admin)
        await proxy.create(input=[user("On.")], previous_response_id=second.json()["id"])
        (slot,) = await proxy.slots()
        assert slot["pinned_until"] is None


async def test_a_tool_call_comes_back_as_it_was_generated(tmp_path: Path) -> None:
    """Arguments spelled otherwise, reasoning dropped, call id changed: the engine is handed its own tokens."""
    seen: list[Generate] = []

    def script(request: Generate) -> Performance:
        seen.append(request)
        if request.prompt.messages[-1].role == "tool":
            return Performance((text("Done."),))
        return Performance(
            (reasoning("I should look."), call("ls", '{"path": "/tmp", "all": true}'))
        )

    tools = [{"type": "function", "name": "ls", "parameters": {"type": "object", "properties": {}}}]
    async with in_process(tmp_path, script) as proxy:
        history: list[dict[str, object]] = [user("List it.")]
        first = await proxy.create(instructions=HEAD, input=history, tools=tools)
        history += [
            {"type": "function_call", "call_id": "c9", "name": "ls", "arguments": '{"all":true,"path":"/tmp"}'},
            {"type": "function_call_output", "call_id": "c9", "output": "a b"},
        ]  # fmt: skip
        second = await proxy.create(instructions=HEAD, input=history, tools=tools)
        assert decision(second)["reason"] == "cache_hit"
        replayed = seen[-1].prompt.messages[2]
        assert replayed.ledger is not None
        assert replayed.reasoning == "I should look."
        (slot,) = await proxy.slots()
        assert slot["conversation"] == decision(first)["conversation"]


async def test_an_engine_fault_ends_one_request(tmp_path: Path) -> None:
    def script(request: Generate) -> Performance:
        fails = request.prompt.messages[-1].text == "fail"
        return Performance((text("a"), text("b")), fail_after=0 if fails else None)

    async with in_process(tmp_path, script) as proxy:
        await converse(proxy, ["fine"])
        broken = await proxy.create(instructions=HEAD, input=[user("fail")])
        assert broken.status_code == 500
        assert broken.json()["error"]["code"] == "engine_fault"
        await converse(proxy, ["fine", "still fine"])


async def test_what_could_not_be_stored_is_not_called_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(_: object) -> None:
        raise StoreFull("The disk that holds the database is full.", retry_after_s=30)

    async with in_process(tmp_path) as proxy:
        with monkeypatch.context() as patch:
            patch.setattr(proxy.store, "commit_turn", full)
            refused = await proxy.create(instructions=HEAD, input=[user("hello")])
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "store_full"
        await converse(proxy, ["hello"])


async def test_orphans_and_unknown_parents_are_named(tmp_path: Path) -> None:
    async with in_process(tmp_path) as proxy:
        orphan = await proxy.create(
            input=[{"type": "function_call_output", "call_id": "call_missing_9", "output": "x"}]
        )
        assert orphan.status_code == 400
        assert orphan.json()["error"]["param"] == "input"
        assert "call_missing_9" in orphan.json()["error"]["message"]
        unknown = await proxy.create(input="x", previous_response_id="resp_nope")
        assert unknown.status_code == 400
        assert unknown.json() == {
            "error": {
                "message": "Previous response with id not found.",
                "type": "invalid_request_error",
                "param": "previous_response_id",
                "code": "previous_response_not_found",
            }
        }
        assert await proxy.slots() == []


async def test_the_calls_that_a_delta_repeats_are_taken_once(tmp_path: Path) -> None:
    seen: list[Generate] = []

    def script(request: Generate) -> Performance:
        seen.append(request)
        first = request.prompt.messages[-1].role == "user"
        return Performance((call("ls", "{}"),) if first else (text("ok"),))

    async with in_process(tmp_path, script) as proxy:
        first = await proxy.create(input=[user("go")])
        made = first.json()["output"][0]
        repeated = {
            "type": "function_call",
            **{k: made[k] for k in ("call_id", "name", "arguments")},
        }
        output = {"type": "function_call_output", "call_id": made["call_id"], "output": "x"}
        await proxy.create(input=[repeated, output], previous_response_id=first.json()["id"])
        roles = [message.role for message in seen[-1].prompt.messages]
        assert roles == ["user", "assistant", "tool"]


async def test_counting_tokens_leaves_no_trace(tmp_path: Path) -> None:
    async with in_process(tmp_path) as proxy:
        counted = await proxy.http.post(
            "/v1/responses/input_tokens", json={"input": "one two three"}
        )
        assert counted.json()["input_tokens"] > 0
        assert await proxy.slots() == []


async def test_store_false_continues_but_is_not_retrievable(tmp_path: Path) -> None:
    async with in_process(tmp_path) as proxy:
        history: list[dict[str, object]] = [user("hi")]
        first = await proxy.create(instructions=HEAD, input=history, store=False)
        key = {"authorization": "Bearer k"}
        gone = await proxy.http.get(f"/v1/responses/{first.json()['id']}", headers=key)
        assert gone.status_code == 404
        history += [*answer_of(first), user("and on")]
        second = await proxy.create(instructions=HEAD, input=history, store=False)
        assert decision(second)["reason"] == "cache_hit"


async def test_what_store_false_said_cannot_be_referred_to(tmp_path: Path) -> None:
    """Until the client sends it in a turn that is stored."""
    async with in_process(tmp_path) as proxy:
        unstored = await proxy.create(instructions=HEAD, input=[user("hi")], store=False)
        stored = await proxy.create(instructions=HEAD, input=[user("hello")])
        (secret,), (known,) = answer_of(unstored), answer_of(stored)

        async def refer(item: dict[str, object]) -> httpx.Response:
            reference = {"type": "item_reference", "id": item["id"]}
            return await proxy.create(instructions=HEAD, input=[user("hi"), reference, user("go")])

        unknown = await refer({"id": "msg_nobody_made"})
        refused = await refer(secret)
        assert refused.status_code == unknown.status_code == 400
        assert refused.json()["error"] == unknown.json()["error"] | {
            "message": f"No stored item has the id '{secret['id']}'. Send the item itself."
        }
        assert (await refer(known)).status_code == 200
        resent = await proxy.create(instructions=HEAD, input=[user("hi"), secret, user("go")])
        assert resent.status_code == 200
        assert (await refer(secret)).status_code == 200


async def test_metrics_tell_what_turns_cost(tmp_path: Path) -> None:
    def script(request: Generate) -> Performance:
        fails = request.prompt.messages[-1].text == "fail"
        return Performance((text("a"), text("b")), fail_after=1 if fails else None)

    async with in_process(tmp_path, script) as proxy:
        await converse(proxy, ["one", "two"])
        await proxy.create(instructions=HEAD, input=[user("fail")])
        page = (await proxy.http.get("/metrics")).text
        figures = dict(line.rsplit(" ", 1) for line in page.splitlines() if line[0] != "#")
        assert figures['ninfer_turns_total{reason="cache_hit"}'] == "1.0"
        assert figures['ninfer_responses_total{status="failed"}'] == "1.0"
        assert figures["ninfer_time_to_first_token_seconds_count"] == "3.0"
        assert figures["ninfer_turns_in_flight"] == "0.0"
        assert float(figures["ninfer_reused_tokens_total"]) > 0


async def test_a_compaction_keeps_slot_and_head(tmp_path: Path) -> None:
    session = {"session-id": "s-1"}
    long_talk = ["Tell me about it. " * 60, "More of it. " * 60, "And the end. " * 60]
    async with in_process(tmp_path) as proxy:
        history: list[dict[str, object]] = []
        for each in long_talk:
            history.append(user(each))
            last = await proxy.create(instructions=HEAD, input=history, headers=session)
            history += answer_of(last)
        summary = (
            "The conversation history before this point was compacted into the following "
            "summary:\n\n<summary>" + "They talked at length. " * 100 + "</summary>"
        )
        compacted = await proxy.create(
            instructions=HEAD, input=[user(summary), user("Go on.")], headers=session
        )
        told = decision(compacted)
        assert told["conversation"] == decision(last)["conversation"]
        assert told["slot"] == decision(last)["slot"]
        assert told["reason"] == "context_compacted"
        assert int(told["reused"]) > 0
        assert len(await proxy.slots()) == 1


async def test_thinking_switched_off_is_recorded_as_an_effort(tmp_path: Path) -> None:
    async with in_process(tmp_path) as proxy:
        for reasoning_field, recorded in (
            ({"effort": "none"}, "none"),
            ({"effort": "low"}, "low"),
            ({}, None),
        ):
            made = await proxy.create(input=[user("hi")], reasoning=reasoning_field)
            explained = await proxy.http.get(
                f"/admin/responses/{made.json()['id']}", headers={"authorization": "Bearer admin"}
            )
            assert explained.json()["effort"] == recorded


async def test_other_weights_are_the_reason_for_computing_anew(tmp_path: Path) -> None:
    async with in_process(tmp_path) as proxy:
        history: list[dict[str, object]] = [user("one")]
        first = await proxy.create(instructions=HEAD, input=history)
        proxy.backend.weights_id = "others"
        proxy.backend.drop(ContinuationId(decision(first)["conversation"]), "gone")
        for reason in ("model_changed", "cache_hit"):
            history += [*answer_of(first), user("more")]
            again = await proxy.create(instructions=HEAD, input=history)
            assert decision(again)["reason"] == reason
