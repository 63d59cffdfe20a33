"""Steady heads through the whole proxy: what reaches the engine, what is stored, what is told of it."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from in_process import ADMIN, InProcess, answer_of, decision, in_process, user

EVERY = "attribution,clock,tool_order,tool_keys"
ATTRIBUTION = "x-client-attribution: ver=3.{0}.9; entry=cli; sum=c{0};"


def tool(name: str, *keys: str) -> dict[str, Any]:
    schema = dict.fromkeys(keys, "x")
    return {"type": "function", "name": name, "parameters": {"type": "object"} | schema}


def volatile(number: int) -> dict[str, Any]:
    """A head that means the same each time and is written otherwise each time."""
    tools = [tool("read", "a", "b"), tool("run"), tool("find")]
    if number % 2:
        tools = [tool("find"), tool("read", "b", "a"), tool("run")]
    return {"instructions": f"Be brief.\nCurrent time: 10:1{number}", "tools": tools}


async def talk(proxy: InProcess, turns: int) -> list[httpx.Response]:
    """A conversation whose head changes with every turn; a system message before it only accounts for the client."""
    history: list[dict[str, Any]] = []
    answers = []
    for number in range(turns):
        line = {"role": "system", "content": ATTRIBUTION.format(number)}
        history.append(user(f"Question {number}."))
        answers.append(await proxy.create(input=[line, *history], **volatile(number)))
        history += answer_of(answers[-1])
    return answers


async def explained(proxy: InProcess, answer: httpx.Response) -> dict[str, Any]:
    view = await proxy.http.get(f"/admin/responses/{answer.json()['id']}", headers=ADMIN)
    found: dict[str, Any] = view.json()
    return found


async def test_nothing_reaches_the_engine_otherwise_by_default(tmp_path: Path) -> None:
    async with in_process(tmp_path) as proxy:
        first, second = await talk(proxy, 2)
        sent, then = (request.prompt for request in proxy.backend.requests)
        assert [m.text for m in sent.messages][:2] == [
            volatile(0)["instructions"],
            ATTRIBUTION.format(0),
        ]
        assert [tool.name for tool in then.tools] == ["find", "read", "run"]
        assert [*then.tools[1].parameters] == ["type", "b", "a"]
        assert decision(second)["reused"] == "0"
        told = await explained(proxy, second)
        assert (told["reason"], told["differs_at"]) == ("tools_changed", "tools[0]")
        assert (told["stabilised"], told["saved_tokens"]) == ([], None)
        assert (await explained(proxy, first))["differs_at"] is None


async def test_a_steady_head_is_computed_once_and_says_so(tmp_path: Path) -> None:
    async with in_process(tmp_path, identity__stabilise=EVERY) as proxy:
        answers = await talk(proxy, 3)
        for request in proxy.backend.requests:
            assert [m.text for m in request.prompt.messages][:2] == [
                "Be brief.\nCurrent time: --:--",
                "Question 0.",
            ]
            assert [tool.name for tool in request.prompt.tools] == ["find", "read", "run"]
            assert [*request.prompt.tools[1].parameters] == ["a", "b", "type"]
        told = await explained(proxy, answers[2])
        assert told["reason"] == "cache_hit"
        assert told["stabilised"] == [
            "tool_keys: keys in the parameters of 1 tool (read) were put in order",
            "tool_order: tools were sorted by name: tools[0] was read, is find",
            "clock: “10:12” in the instructions became “--:--”",
            f"attribution: “{ATTRIBUTION.format(2)}” in item 0 was left out",
        ]
        assert told["saved_tokens"] == told["reused_tokens"] > 0
        assert decision(answers[2])["saved"] == str(told["saved_tokens"])


async def test_what_clients_and_operators_read_is_what_was_sent(tmp_path: Path) -> None:
    async with in_process(tmp_path, identity__stabilise=EVERY) as proxy:
        answer = (await talk(proxy, 1))[0].json()
        assert answer["instructions"] == volatile(0)["instructions"]
        assert [tool["name"] for tool in answer["tools"]] == ["read", "run", "find"]
        items = await proxy.http.get(
            f"/v1/responses/{answer['id']}/input_items?order=asc",
            headers={"authorization": "Bearer k"},
        )
        (part,) = items.json()["data"][0]["content"]
        assert part["text"] == ATTRIBUTION.format(0)


async def test_it_counts_as_saved_only_where_the_head_would_have_differed(tmp_path: Path) -> None:
    async with in_process(tmp_path, identity__stabilise="clock") as proxy:
        same = {"instructions": "It is 10:11.", "headers": {"session_id": "s"}}
        first = await proxy.create(input="Hi", **same)
        history = [user("Hi"), *answer_of(first), user("On.")]
        again = await explained(proxy, await proxy.create(input=history, **same))
        assert (again["saved_tokens"], again["reason"]) == (None, "cache_hit")
        assert again["stabilised"] == ["clock: “10:11” in the instructions became “--:--”"]


async def test_a_steady_head_goes_on_behind_a_stored_response(tmp_path: Path) -> None:
    """The system message is stored as it was sent, and made steady each time it is read."""
    async with in_process(tmp_path, identity__stabilise="clock") as proxy:
        head = {"role": "system", "content": "It is 10:11."}
        first = await proxy.create(input=[head, user("Hi")])
        then = await proxy.create(input="On.", previous_response_id=first.json()["id"])
        texts = [message.text for message in proxy.backend.requests[1].prompt.messages]
        assert texts[0] == "It is --:--."
        assert decision(then)["reason"] == "cache_hit"


@pytest.mark.parametrize("kept", [True, False], ids=["stored", "store:false"])
async def test_a_head_that_means_the_same_is_told_to_be_written_otherwise(
    tmp_path: Path, kept: bool
) -> None:
    async with in_process(tmp_path) as proxy:
        tools = [tool("read"), tool("run")]
        first = await proxy.create(input="Hi", tools=tools, store=kept)
        history = [user("Hi"), *answer_of(first), user("On.")]
        answer = await proxy.create(input=history, tools=tools[::-1], store=kept)
        told = await explained(proxy, answer)
        assert (told["reason"], told["differs_at"]) == ("tools_changed", "tools[0]")
        assert '[identity] stabilise = ["tool_order"]' in told["difference"]
        assert decision(answer)["differs"] == "tools[0]"


async def test_a_deleted_response_quotes_nothing_any_more(tmp_path: Path) -> None:
    async with in_process(tmp_path, identity__stabilise="clock") as proxy:
        secret = {"instructions": "The secret. It is 10:11."}
        first = await proxy.create(input="Hi", **secret)
        history = [user("Hi, secret"), *answer_of(first)]
        answer = await proxy.create(input=[*history, user("On.")], headers={"session_id": "s"})
        edited = [user("Hi, secrets"), *history[1:], user("Off.")]
        answer = await proxy.create(input=edited, headers={"session_id": "s"}, **secret)
        assert "secret" in (await explained(proxy, answer))["difference"]
        name = answer.json()["id"]
        gone = await proxy.http.delete(
            f"/v1/responses/{name}", headers={"authorization": "Bearer k"}
        )
        assert gone.status_code == 200
        told = await explained(proxy, answer)
        assert told["stabilised"] == []
        assert "secret" not in str({name: told[name] for name in told if name != "evidence"})


@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_completion_is_explained_by_its_own_id(tmp_path: Path, stream: bool) -> None:
    async with in_process(tmp_path) as proxy:
        body = {"messages": [{"role": "user", "content": "Hi"}], "stream": stream}
        answer = await proxy.http.post("/v1/chat/completions", json=body)
        text = answer.text
        assert '"ninfer_reason":"new_conversation"' in text.replace(" ", "")
        name = text[text.index("chatcmpl-") :].partition('"')[0]
        view = (await proxy.http.get(f"/admin/responses/{name}", headers=ADMIN)).json()
        assert view["reason"] == "new_conversation"


async def test_diagnostics_tell_all_that_explain_tells(tmp_path: Path) -> None:
    async with in_process(tmp_path, identity__stabilise=EVERY) as proxy:
        answer = (await talk(proxy, 2))[1]
        shown = answer.json()["prompt_cache_diagnostics"]["ninfer"]
        told = await explained(proxy, answer)
        assert shown == {name: told[name] for name in shown}
        assert shown["stabilised"]


async def test_no_state_and_no_history_is_shared_between_keys(tmp_path: Path) -> None:
    """Two tenants send the same under the same session name; neither finds anything of the other."""
    async with in_process(tmp_path) as proxy:
        session = {"headers": {"session_id": "same"}, "instructions": "Be brief."}
        answers = {}
        for key in ("a", "b"):
            first = await proxy.create(key, input="Hi", **session)
            history = [user("Hi"), *answer_of(first), user("On.")]
            answers[key] = (first, await proxy.create(key, input=history, **session))
        for first, second in answers.values():
            assert decision(first)["reason"] == "new_conversation"
            assert decision(first)["reused"] == "0"
            assert decision(second)["reason"] == "cache_hit"
        homes = {decision(second)["conversation"] for _, second in answers.values()}
        assert len(homes) == 2
        mine = answers["a"][0].json()["id"]
        stolen = await proxy.create("b", input="On.", previous_response_id=mine)
        assert stolen.json()["error"]["code"] == "previous_response_not_found"
