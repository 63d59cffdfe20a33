"""Where resumable states are wanted in a prompt. Knows borders between messages, not tokens.

Each anchor costs a state image (147 MB for a 27B model), so there are few, and none where another one stands:

    tools system | user … tool | user carrier | (opener)
               HEAD            TRANSIENT     PROMPT_END
    HEAD ─256 tokens┘       REWIND ─256 tokens─┘            REWIND only without TRANSIENT, which stands as near

Instructions often end in what changes from turn to turn, a clock or notes: the second HEAD serves those that differ there.
"""

from collections.abc import Iterator

from ninfer_proxy.habits import MOST_BACK, Habits, Place
from ninfer_proxy.planning.policy import Policy
from ninfer_proxy.types import Anchor, AnchorKind, LineRole, PromptLayout

MAX_EXPLICIT = 4
"""As many as Anthropic's API allows in one request; the last ones count."""


NO_HABITS: Habits = {}


def wanted_anchors(
    layout: PromptLayout,
    role: LineRole,
    policy: Policy,
    branch: int | None = None,
    habits: Habits = NO_HABITS,
) -> tuple[Anchor, ...]:
    """The anchors of a turn, most valuable first. `branch` messages stand before the first item that differs from the stored
    line: a place that is edited once is edited again. `habits` are what was learned of the client's family.

    A side line gets its head, which comes again with the next request of its kind, and the place before what won't.
    """
    places: dict[tuple[int, int], Anchor] = {}
    for anchor in _candidates(layout, role, policy, branch, habits):
        places.setdefault((anchor.messages, anchor.back), anchor)
    return tuple(places.values())


def _candidates(
    layout: PromptLayout, role: LineRole, policy: Policy, branch: int | None, habits: Habits
) -> Iterator[Anchor]:
    yield Anchor(AnchorKind.HEAD, layout.head)
    transient = transient_border(layout, policy, habits)
    if transient is not None:
        yield Anchor(AnchorKind.TRANSIENT, transient)
    if role is LineRole.SIDE:
        return
    for border in sorted(set(layout.explicit))[-MAX_EXPLICIT:]:
        if layout.head < border < layout.messages:
            yield Anchor(AnchorKind.EXPLICIT, border)
    if branch is not None and layout.head < branch < layout.messages:
        yield Anchor(AnchorKind.BRANCH, branch)
    if layout.messages > 0:
        yield Anchor(AnchorKind.PROMPT_END, layout.messages)
        if transient is None:
            yield Anchor(AnchorKind.REWIND, layout.messages, policy.rewind_tokens)
    yield Anchor(AnchorKind.HEAD, layout.head, policy.rewind_tokens)


def transient_border(layout: PromptLayout, policy: Policy, habits: Habits) -> int | None:
    """How many messages stand before what the client will take back, as far as its habits tell; None: nothing, or right behind an
    answer, whose own state stands there.
    """
    tail = layout.tail
    for back in range(min(len(tail) - 1, MOST_BACK), 0, -1):
        if _passes(Place(tail[-back], back), tail[-back - 1], policy, habits):
            return layout.messages - back
    return None


def _passes(place: Place, before: str, policy: Policy, habits: Habits) -> bool:
    """Is what stands at a place, behind a message of the role `before`, likely to be gone in the next request?

    As long as nothing is known, only a last user message right behind another one is taken for a passing note.
    """
    tally = habits.get(place)
    if tally is None:
        return place == Place("user", 1) and before == "user"
    return tally.share >= policy.transient_share
