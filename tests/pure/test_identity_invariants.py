"""What holds whatever clients do: one slot a conversation, side requests beside the main line, spelling that doesn't count.

Several clients take turns: they ask, run tools, edit, compact, ask twice at once, and send jobs on the side of kinds that are
known and of kinds that are not. Identity and planning decide about each request; what they decided must keep to the rules.
"""

import json
import random
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from identity_talk import TOOLS, call, output, said, turn, user
from replaying import Lines, recorded, row_of

from ninfer_proxy.identity.resolve import identify
from ninfer_proxy.planning.plan import plan_turn
from ninfer_proxy.planning.policy import Policy
from ninfer_proxy.types import (
    ContinuationId,
    ConversationId,
    Identity,
    Item,
    LineRole,
    Match,
    MatchKind,
    PromptLayout,
    SlotState,
    Turn,
)
from tests import recordings

POLICY = Policy(slots=2, scratch_slots=2)
# Kind → what it asks, its tools, whether it brings the history. A job of no known kind that brings it is taken for a turn.
SIDES = {
    "heartbeat": ("Follow the heartbeat monitor scratch context.", TOOLS[:1], True),
    "memory_flush": ("Pre-compaction memory flush. Store durable memories.", TOOLS[:1], True),
    "unknown": ("Judge whether the last answer was polite.", TOOLS[:1], False),
    "unknown_bare": ("Judge whether the last answer was polite.", (), False),
}
OPENCLAW = "You are a personal assistant running inside OpenClaw."


@dataclass
class Client:
    name: str
    named: bool
    history: list[Item] = field(default_factory=list)
    calls: int = 0

    @property
    def headers(self) -> dict[str, str]:
        return {"session_id": self.name} if self.named else {}

    @property
    def instructions(self) -> str:
        return f"{OPENCLAW} Your owner is {self.name}."


@dataclass
class World:
    """Clients, the line store and the slots. `told` is what identity said of each turn of a main line."""

    named: bool
    store: Lines = field(default_factory=Lines)
    slots: dict[int, SlotState] = field(default_factory=dict)
    clients: dict[str, Client] = field(default_factory=dict)
    homes: dict[str, ConversationId] = field(default_factory=dict)
    told: list[tuple[Any, ...]] = field(default_factory=list)

    def client(self, name: str) -> Client:
        return self.clients.setdefault(name, Client(name, self.named))

    def main_turn(self, client: Client, action: str) -> None:
        """A turn of the client's conversation after it has changed its history as `action` says.

        A client that names no session is known by its content: it keeps its first question and answer.
        """
        if action == "edit":
            client.history = client.history[: max(0 if self.named else 2, len(client.history) // 2)]
        if action == "compact" and self.named and len(client.history) > 4:
            summary = "The conversation history before this point was compacted into a summary."
            client.history = [user(f"{summary} {client.calls}"), *client.history[-2:]]
        client.calls += 1
        client.history.append(user(f"question {client.calls} of {client.name}"))
        if action == "twice":
            self._two_at_once(client)
        answer: Item = said(f"answer {client.calls}")
        if action == "tool":
            answer = call(f"call_{client.name}_{client.calls}")
        self._finish(client, self._request(client), answer)
        client.history.append(answer)
        if action == "tool":
            client.history.append(output(f"call_{client.name}_{client.calls}", "done"))

    def side(self, client: Client, kind: str) -> None:
        asked, tools, brings_history = SIDES[kind]
        request = turn(
            *(client.history if brings_history else ()),
            user(asked),
            headers=client.headers,
            instructions=f"{OPENCLAW} Job: {kind}.",
            tools=tools,
        )
        before = {n: state for n, state in self.slots.items() if state.role is LineRole.MAIN}
        lines = {name: self.store.lines[home] for name, home in self.homes.items()}
        items, identity, match = self.store.match(request)
        if self.named or identity.side_kind is not None:
            assert match.role is LineRole.SIDE, (kind, match)
        if match.role is LineRole.SIDE:
            self._plan(match, items, identity, said(f"{kind} done"))
            mains = {n: state for n, state in self.slots.items() if state.role is LineRole.MAIN}
            assert mains == before
            assert {name: self.store.lines[home] for name, home in self.homes.items()} == lines

    def _request(self, client: Client) -> Turn:
        return turn(*client.history, headers=client.headers, instructions=client.instructions)

    def _finish(self, client: Client, request: Turn, answer: Item) -> None:
        items, identity, match = self.store.match(request)
        conversation = self._plan(match, items, identity, answer)
        assert match.role is LineRole.MAIN
        assert self.homes.setdefault(client.name, conversation) == conversation
        self.told.append(
            (client.name, match.kind, match.shared, match.known_items, match.divergence)
        )

    def _two_at_once(self, client: Client) -> None:
        """A second request of the conversation while one runs: a fork, in the same slot."""
        home = self.homes.get(client.name)
        if home is None:
            return
        self.store.running(home, 1)
        items, _, match = self.store.match(self._request(client))
        self.store.running(home, 0)
        assert (match.kind, match.conversation) == (MatchKind.FORKS, home)
        held = [n for n, state in self.slots.items() if state.conversation == home]
        plan = plan_turn(
            match, [*self.slots.values()], home, PromptLayout(1, len(items)), POLICY, 0.0
        )
        assert held in ([], [plan.slot])

    def _plan(
        self, match: Match, items: tuple[Item, ...], identity: Identity, answer: Item
    ) -> ConversationId:
        """Plan and finish a turn; the slots as they are then."""
        conversation = self.store.commit(None, items, identity, match, (answer,))
        now = self.store.clock
        layout = PromptLayout(1, len(items) + 1)
        plan = plan_turn(match, [*self.slots.values()], conversation, layout, POLICY, now)
        if match.role is LineRole.SIDE:
            assert {self.slots[each.slot].role for each in plan.evictions} <= {LineRole.SIDE}
        for gone in plan.evictions:
            del self.slots[gone.slot]
        self.slots = {n: s for n, s in self.slots.items() if s.conversation != conversation}
        assert plan.slot not in self.slots
        self.slots[plan.slot] = SlotState(
            plan.slot, conversation, ContinuationId(conversation), match.role, now
        )
        return conversation


ACTIONS = ("ask", "ask", "tool", "edit", "compact", "twice")
events = st.lists(
    st.tuples(st.sampled_from("xyz"), st.sampled_from((*ACTIONS, *SIDES))), min_size=1, max_size=30
)


def lived(named: bool, story: list[tuple[str, str]], *, sides: bool) -> World:
    world = World(named)
    for name, what in story:
        client = world.client(name)
        if what in ACTIONS:
            world.main_turn(client, what)
        elif sides and client.history:
            world.side(client, what)
    return world


@settings(max_examples=120, deadline=None)
@given(events, st.booleans())
def test_a_conversation_holds_one_slot_and_side_requests_move_no_main_line(
    story: list[tuple[str, str]], named: bool
) -> None:
    """The rules that `World` asserts with each event, and at the end: a slot for each conversation that has one."""
    world = lived(named, story, sides=True)
    holders = [state.conversation for state in world.slots.values()]
    assert len(holders) == len(set(holders))
    mains = [state for state in world.slots.values() if state.role is LineRole.MAIN]
    assert len(mains) <= 2
    assert len(holders) - len(mains) <= 2


@settings(max_examples=80, deadline=None)
@given(events, st.booleans())
def test_main_lines_are_told_the_same_with_and_without_side_requests(
    story: list[tuple[str, str]], named: bool
) -> None:
    """So what a main line shares with its next request, and can be reused, is never lowered by what ran beside it."""
    assert lived(named, story, sides=True).told == lived(named, story, sides=False).told


# --- spelling ----------------------------------------------------------------------------------

BODIES = [
    raw
    for name in ("openclaw/b2_cont_ids", "openclaw/e_completions", "clients/opencode")
    for raw in recordings.rows(name)
]


def shuffled(value: Any, order: random.Random) -> Any:
    """The same JSON with the keys of each object in another order, arguments of calls included."""
    if isinstance(value, list):
        return [shuffled(each, order) for each in value]
    if not isinstance(value, dict):
        return value
    names = list(value)
    order.shuffle(names)
    turned = {name: shuffled(value[name], order) for name in names}
    if isinstance(turned.get("arguments"), str):
        turned["arguments"] = json.dumps(shuffled(json.loads(turned["arguments"]), order), indent=1)
    return turned


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(BODIES), st.randoms(use_true_random=False))
def test_the_order_of_keys_and_tools_does_not_count(
    raw: dict[str, Any], order: random.Random
) -> None:
    headers = {name.lower(): value for name, value in raw["headers"]}
    body = shuffled(raw["body"], order)
    order.shuffle(body.get("tools", []))
    one, other = (row_of(raw, each, headers).turn for each in (raw["body"], body))
    assert identify(one, one.items) == identify(other, other.items)


def test_recorded_requests_keep_their_place_with_their_tools_turned_round() -> None:
    rows = [
        replace(row, turn=replace(row.turn, tools=row.turn.tools[::-1]))
        for row in recorded("openclaw/b2_cont_ids")
    ]
    for mirrored, row in zip(rows, recorded("openclaw/b2_cont_ids"), strict=True):
        assert identify(mirrored.turn, row.turn.items) == identify(row.turn, row.turn.items)
