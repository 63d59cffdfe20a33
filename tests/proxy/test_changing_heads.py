"""Instructions that end in what changes each turn: what stands before that is not computed again."""

from pathlib import Path
from typing import Any

from tests.proxy.in_process import answer_of, in_process, user

WORDS = " ".join(f"rule{number}" for number in range(600))


def instructions(clock: str) -> dict[str, Any]:
    return {"instructions": f"{WORDS} Current time: {clock}", "headers": {"session-id": "s"}}


async def test_a_clock_behind_the_instructions_costs_no_more_than_their_end(tmp_path: Path) -> None:
    async with in_process(tmp_path) as proxy:
        first = await proxy.create(input=[user("One.")], **instructions("10:11:07"))
        history = [user("One."), *answer_of(first), user("Two.")]
        second = (await proxy.create(input=history, **instructions("10:12:14"))).json()
        cached = second["usage"]["input_tokens_details"]["cached_tokens"]
        # The scripted engine's tokens are words: of 600 rules all but the last 256 tokens of the head come again.
        assert 600 - 256 <= cached < 600
