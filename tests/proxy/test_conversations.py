"""One conversation, one slot: whole conversations through the official SDK against the running product."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai
import pytest
from real_service import RealService, real_service

INSTRUCTIONS = "You are a careful assistant who answers in one short sentence. " * 30
SLACK = 300
TOOLS: list[Any] = [
    {
        "type": "function",
        "name": "exec",
        "description": "Run a shell command and return its output.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string", "description": "The command line."}},
            "required": ["command"],
        },
    }
]
FACTS = ("Ostrava", "Calder", "Nimes", "Tromso", "Quito", "Lugano", "Izmir", "Bergen")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealService]:
    with real_service(tmp_path_factory.mktemp("service") / "data") as running:
        yield running


@dataclass
class Chat:
    """A client that keeps its own history and checks what each turn cost."""

    client: openai.OpenAI
    history: list[Any] = field(default_factory=list)
    seen: int = 0
    conversations: set[str] = field(default_factory=set)
    turns: int = 0

    def say(self, text: str, **options: Any) -> Any:
        self.history.append({"role": "user", "content": text})
        return self.send(**options)

    def send(self, **options: Any) -> Any:
        request: dict[str, Any] = {
            "model": "demo",
            "instructions": INSTRUCTIONS,
            "input": self.history,
            "max_output_tokens": 64,
        } | options
        raw = self.client.responses.with_raw_response.create(**request)
        response = raw.parse()
        self.note(raw.headers["x-ninfer-decision"], response.usage)
        return response

    def note(self, decision: str, usage: Any) -> None:
        """From the second turn on, no more is computed than what is new and a rest."""
        fields = dict(part.split("=", 1) for part in decision.split("; ")[1:])
        self.conversations.add(fields["conversation"])
        cached = usage.input_tokens_details.cached_tokens
        assert int(fields["reused"]) == cached
        if self.turns:
            new = max(0, usage.input_tokens - self.seen)
            assert usage.input_tokens - cached <= new + SLACK, decision
            assert cached > 0
        self.seen = usage.input_tokens + usage.output_tokens
        self.turns += 1

    def one_slot(self, service: RealService) -> dict[str, Any]:
        assert len(self.conversations) == 1
        (slot,) = service.slots(next(iter(self.conversations)))
        return slot


def plain(response: Any) -> list[dict[str, Any]]:
    """What a client without ids keeps of an answer: the text, if there is one."""
    return [{"role": "assistant", "content": response.output_text}] if response.output_text else []


def test_whole_history_without_ids(service: RealService) -> None:
    """Reasoning is dropped on the way, since the client keeps text only."""
    chat = Chat(service.client("plain"))
    for number, fact in enumerate(FACTS):
        chat.history += plain(chat.say(f"The town of number {number} is {fact}. Remember it."))
    slot = chat.one_slot(service)
    assert slot["class"] == "recent"
    assert slot["tokens_reused"] > slot["tokens_prefilled"]


def test_reasoning_sent_back(service: RealService) -> None:
    chat = Chat(service.client("reasoning"))
    for fact in FACTS[:4]:
        response = chat.say(f"My friend lives in {fact}. Where?")
        chat.history += [item.model_dump(exclude_none=True) for item in response.output]
    chat.one_slot(service)


def test_chain_of_previous_responses(service: RealService) -> None:
    chat = Chat(service.client("chain"))
    previous: str | None = None
    for fact in FACTS:
        chat.history = []
        options = {"previous_response_id": previous} if previous else {}
        previous = chat.say(f"My key word is {fact}.", **options).id
    chat.one_slot(service)


def test_title_job_and_token_count_between_turns(service: RealService) -> None:
    client = service.client("side")
    chat = Chat(client)
    for fact in FACTS[:5]:
        chat.history += plain(chat.say(f"We talk about {fact}."))
        counted = client.responses.input_tokens.count(
            model="demo", instructions=INSTRUCTIONS, input=chat.history
        )
        assert counted.input_tokens > 0
        client.responses.create(
            model="demo",
            instructions="Write a short title for this chat.",
            input=f"user: We talk about {fact}.",
            max_output_tokens=16,
            store=False,
        )
    chat.one_slot(service)


def test_tool_calls_with_arguments_spelled_otherwise(service: RealService) -> None:
    """The call comes back with other white space and another id; its own tokens are used all the same."""
    chat = Chat(service.client("tools"))
    for number in range(4):
        response = chat.say(
            f"Run the command `echo item-{number}` with the exec tool.", tools=TOOLS
        )
        for item in response.output:
            if item.type != "function_call":
                continue
            spelled = json.dumps(json.loads(item.arguments), indent=3)
            call_id = f"toolu_{number}"
            chat.history.append(
                {
                    "type": "function_call",
                    "call_id": call_id,
                    "name": item.name,
                    "arguments": spelled,
                }
            )
            chat.history.append(
                {"type": "function_call_output", "call_id": call_id, "output": f"item-{number}"}
            )
            chat.history += plain(chat.send(tools=TOOLS))
            break
        else:
            pytest.fail(f"no tool call in turn {number}: {response.output}")
    chat.one_slot(service)


def test_two_conversations_keep_apart(service: RealService) -> None:
    """Same key, same head: what is said makes the difference."""
    client = service.client("pair")
    left, right = Chat(client), Chat(client)
    for fact in FACTS[:4]:
        left.history += plain(left.say(f"Left speaks of {fact}."))
        right.history += plain(right.say(f"Right speaks of {fact}."))
    assert left.one_slot(service)["slot"] != right.one_slot(service)["slot"]


def test_another_key_reads_nothing(service: RealService) -> None:
    first = Chat(service.client("owner"))
    first.say("The secret is Basel.")
    raw = service.client("stranger").responses.with_raw_response.create(
        model="demo",
        instructions=INSTRUCTIONS,
        input=[{"role": "user", "content": "The secret is Basel."}],
        max_output_tokens=8,
    )
    assert raw.parse().usage.input_tokens_details.cached_tokens == 0
    assert raw.headers["x-ninfer-decision"].startswith("new_conversation")


def test_edit_rewinds_in_the_same_slot(service: RealService) -> None:
    chat = Chat(service.client("edit"))
    for fact in FACTS[:4]:
        chat.history += plain(chat.say(f"A town: {fact}."))
    edited = Chat(chat.client, history=chat.history[:4], seen=chat.seen, turns=1)
    edited.say("Another town: Porto.")
    assert edited.conversations == chat.conversations
    chat.one_slot(service)


def test_explanation_of_a_response(service: RealService) -> None:
    chat = Chat(service.client("explain"))
    response = chat.say("Hello.")
    explained = service.admin("explain", response.id)
    text = json.dumps(explained)
    assert "new_conversation" in text
    assert response.id in text


def test_one_data_directory_one_server(service: RealService, tmp_path: Path) -> None:
    second = RealService(service.data_dir)
    with pytest.raises(AssertionError, match="in use by process"):
        second.start()
