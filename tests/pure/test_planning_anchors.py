"""Where states are wanted: few, and none twice."""

from ninfer_proxy.habits import Habits, Place, Tally
from ninfer_proxy.planning.anchors import NO_HABITS, wanted_anchors
from ninfer_proxy.planning.policy import Policy
from ninfer_proxy.types import AnchorKind, LineRole, PromptLayout

POLICY = Policy()


def wanted(
    layout: PromptLayout,
    role: LineRole = LineRole.MAIN,
    branch: int | None = None,
    habits: Habits = NO_HABITS,
) -> list[tuple[str, int, int]]:
    anchors = wanted_anchors(layout, role, POLICY, branch, habits)
    return [(each.kind.value, each.messages, each.back) for each in anchors]


def test_the_default_set() -> None:
    assert wanted(PromptLayout(head=1, messages=6)) == [
        ("head", 1, 0),
        ("prompt_end", 6, 0),
        ("rewind", 6, 256),
        ("head", 1, 256),
    ]


def test_before_a_transient_item_stands_one_that_the_next_turn_resumes_from() -> None:
    """user, answer, user, carrier: the carrier is gone next time, so the border before it is what both prompts share."""
    assert wanted(PromptLayout(head=1, messages=5, tail=("user", "user"))) == [
        ("head", 1, 0),
        ("transient", 4, 0),
        ("prompt_end", 5, 0),
        ("head", 1, 256),
    ]


def test_no_place_is_asked_for_twice() -> None:
    layout = PromptLayout(head=1, messages=3, tail=("user", "user"), explicit=(1, 2, 2, 3, 9))
    places = [(messages, back) for _, messages, back in wanted(layout, branch=2)]
    assert len(places) == len(set(places))
    assert places == [(1, 0), (2, 0), (3, 0), (1, 256)]


def test_only_the_last_explicit_marks_count() -> None:
    layout = PromptLayout(head=1, messages=10, explicit=(2, 3, 4, 5, 6, 7))
    explicit = [messages for kind, messages, _ in wanted(layout) if kind == AnchorKind.EXPLICIT]
    assert explicit == [4, 5, 6, 7]


def test_a_branch_point_is_kept_for_the_next_edit() -> None:
    assert ("branch", 3, 0) in wanted(PromptLayout(head=1, messages=6), branch=3)


def test_side_requests_get_their_head_and_the_place_before_what_vanishes() -> None:
    assert wanted(PromptLayout(head=1, messages=2), LineRole.SIDE) == [("head", 1, 0)]
    layout = PromptLayout(head=1, messages=9, tail=("user", "user"), explicit=(5,))
    assert wanted(layout, LineRole.SIDE) == [("head", 1, 0), ("transient", 8, 0)]


def test_a_prompt_of_nothing_but_a_head_is_its_own_end() -> None:
    assert wanted(PromptLayout(head=1, messages=1)) == [("head", 1, 0), ("rewind", 1, 256)]


LAST = Place("user", 1)
BEHIND_A_TOOL = PromptLayout(head=1, messages=6, tail=("tool", "user"))


def test_what_a_client_takes_back_gets_an_anchor_before_it() -> None:
    assert wanted(BEHIND_A_TOOL) == wanted(PromptLayout(head=1, messages=6))
    assert wanted(BEHIND_A_TOOL, habits={LAST: Tally(gone=1.0)}) == [
        ("head", 1, 0),
        ("transient", 5, 0),
        ("prompt_end", 6, 0),
        ("head", 1, 256),
    ]


def test_a_client_that_keeps_its_items_gets_no_anchor_more() -> None:
    layout = PromptLayout(head=1, messages=5, tail=("user", "user"))
    assert wanted(layout, habits={LAST: Tally(kept=1.0)}) == wanted(PromptLayout(1, 5))


def test_one_time_in_four_is_enough() -> None:
    often, seldom = Tally(gone=1.0, kept=3.0), Tally(gone=1.0, kept=3.1)
    assert ("transient", 5, 0) in wanted(BEHIND_A_TOOL, habits={LAST: often})
    assert ("transient", 5, 0) not in wanted(BEHIND_A_TOOL, habits={LAST: seldom})


def test_of_several_places_the_first_is_taken_and_only_for_its_role() -> None:
    layout = PromptLayout(head=1, messages=9, tail=("tool", "tool", "user"))
    habits = {LAST: Tally(gone=1.0), Place("tool", 2): Tally(gone=1.0)}
    assert ("transient", 7, 0) in wanted(layout, habits=habits)
    assert ("transient", 8, 0) in wanted(layout, habits={**habits, Place("tool", 2): Tally()})
    assert ("transient", 8, 0) in wanted(
        layout, habits={LAST: Tally(gone=1.0), Place("user", 2): Tally(gone=1.0)}
    )


def test_right_behind_an_answer_its_own_state_stands_already() -> None:
    layout = PromptLayout(head=1, messages=6, tail=("user",))
    assert wanted(layout, habits={LAST: Tally(gone=1.0)}) == wanted(layout)
