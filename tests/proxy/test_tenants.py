"""API keys are walls: what one tenant is told and reuses is the same whether another one is there or not, whatever both send."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from in_process import InProcess, answer_of, decision, in_process, user

# Both tenants draw from the same few words, so that heads, openings, sessions and ids of one fit the other.
steps = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.sampled_from(["new", "go on", "go on", "by id", "edit"]),
        st.sampled_from(["session", ""]),
    ),
    min_size=2,
    max_size=10,
)
Step = tuple[str, str, str]


class Tenant:
    """One key's client: what it sends depends on its own answers only."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.history: list[dict[str, Any]] = []
        self.last: str | None = None
        self.told: list[tuple[str, ...]] = []
        self.conversations: list[str] = []

    async def step(self, proxy: InProcess, action: str, session: str) -> None:
        body: dict[str, Any] = {"instructions": "Be brief."}
        if session:
            body["headers"] = {"session_id": session}
        if action == "new" or not self.history:
            self.history = []
        if action == "edit":
            self.history = self.history[:2]
        self.history.append(user(f"Say {len(self.history)}."))
        body["input"] = self.history
        if action == "by id" and self.last is not None:
            body |= {"input": self.history[-1:], "previous_response_id": self.last}
        answer = await proxy.create(self.key, **body)
        assert answer.status_code == 200, answer.text
        self.history += answer_of(answer)
        self.last = answer.json()["id"]
        found = decision(answer)
        self.conversations.append(found["conversation"])
        self.told.append(tuple(found[name] for name in ("reason", "match", "reused", "prefilled")))


async def lived(story: list[Step], keys: str) -> dict[str, Tenant]:
    tenants = {key: Tenant(key) for key in keys}
    with tempfile.TemporaryDirectory() as folder:
        async with in_process(Path(folder)) as proxy:
            for key, action, session in story:
                if key in tenants:
                    await tenants[key].step(proxy, action, session)
    return tenants


@settings(max_examples=8, deadline=None)
@given(steps)
def test_a_tenant_is_told_the_same_whether_alone_or_not(story: list[Step]) -> None:
    together = asyncio.run(lived(story, "ab"))
    for key, tenant in together.items():
        alone = asyncio.run(lived(story, key))[key]
        assert tenant.told == alone.told
    assert not set(together["a"].conversations) & set(together["b"].conversations)
