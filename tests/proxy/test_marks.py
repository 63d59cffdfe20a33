"""What a client asks for beside the text reaches the engine: marked prefixes as anchors, reasoning settings in the prompt."""

from pathlib import Path
from typing import Any

import pytest
from in_process import InProcess, answer_of, in_process, user

from engine.api import Anchor, AnchorKind, Generate
from ninfer_proxy.backends.scripted import Performance, text

ADMIN = {"authorization": "Bearer admin"}
EPHEMERAL = {"cache_control": {"type": "ephemeral"}}
BREAKPOINT = {"prompt_cache_breakpoint": {"mode": "explicit"}}
READ = {"type": "message", "role": "assistant", "content": "Read."}


class Listener:
    """Answers "ok" and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Generate] = []

    def __call__(self, request: Generate) -> Performance:
        self.asked.append(request)
        return Performance((text("ok"),))

    @property
    def explicit(self) -> list[Anchor]:
        return [each for each in self.asked[-1].anchors if each.kind is AnchorKind.EXPLICIT]


def marked(mark: dict[str, Any]) -> dict[str, Any]:
    part = {"type": "input_text", "text": "A long document.", **mark}
    return {"type": "message", "role": "user", "content": [part]}


async def chat(proxy: InProcess, *messages: dict[str, Any], **fields: Any) -> Any:
    answer = await proxy.http.post(
        "/v1/chat/completions",
        headers={"authorization": "Bearer k"},
        json={"messages": list(messages), **fields},
    )
    assert answer.status_code == 200, answer.text
    return answer


@pytest.mark.parametrize("mark", [EPHEMERAL, BREAKPOINT])
async def test_a_marked_item_is_anchored(tmp_path: Path, mark: dict[str, Any]) -> None:
    listener = Listener()
    async with in_process(tmp_path, listener) as proxy:
        made = await proxy.create(
            instructions="Be brief.", input=[marked(mark), READ, user("Sum up.")]
        )
        assert listener.explicit == [Anchor(AnchorKind.EXPLICIT, 2)]
        assert "x-ninfer-warnings" not in made.headers
        # The mark is stored with its item, and goes on to count.
        await proxy.create(input=[user("And?")], previous_response_id=made.json()["id"])
        assert listener.explicit == [Anchor(AnchorKind.EXPLICIT, 1)]


async def test_marks_change_nobodys_identity(tmp_path: Path) -> None:
    listener = Listener()
    async with in_process(tmp_path, listener) as proxy:
        first = await proxy.create(input=[marked(BREAKPOINT), READ, user("Sum up.")])
        history = [marked({}), READ | EPHEMERAL, user("Sum up."), *answer_of(first)]
        second = await proxy.create(input=[*history, user("And?")])
        assert second.headers["x-ninfer-decision"].startswith("cache_hit")
        assert listener.explicit == [Anchor(AnchorKind.EXPLICIT, 2)]


async def test_a_marked_chat_part_is_anchored(tmp_path: Path) -> None:
    listener = Listener()
    async with in_process(tmp_path, listener) as proxy:
        document = {"type": "text", "text": "A long document.", **EPHEMERAL}
        await chat(
            proxy,
            {"role": "system", "content": [{"type": "text", "text": "Be brief.", **EPHEMERAL}]},
            {"role": "user", "content": [document]},
            {"role": "assistant", "content": "Read.", **EPHEMERAL},
            {"role": "user", "content": "Sum up."},
        )
        # The system message ends the head, which is anchored anyway.
        assert listener.explicit == [
            Anchor(AnchorKind.EXPLICIT, 2),
            Anchor(AnchorKind.EXPLICIT, 3),
        ]


async def test_leaving_reasoning_out_reaches_the_engine_and_is_recorded(tmp_path: Path) -> None:
    listener = Listener()
    async with in_process(tmp_path, listener) as proxy:
        for template, preserved, recorded in (
            ({"preserve_thinking": False}, False, "default, earlier reasoning left out"),
            (
                {"preserve_thinking": False, "reasoning_effort": "low"},
                False,
                "low, earlier reasoning left out",
            ),
            ({"preserve_thinking": True, "template_of_others": 1}, True, None),
        ):
            made = await proxy.create(input=[user("hi")], chat_template_kwargs=template)
            assert listener.asked[-1].prompt.preserve_thinking is preserved
            explained = await proxy.http.get(f"/admin/responses/{made.json()['id']}", headers=ADMIN)
            assert explained.json()["effort"] == recorded
        assert made.headers["x-ninfer-warnings"] == (
            "chat_template_kwargs.template_of_others: unknown field, ignored"
        )
