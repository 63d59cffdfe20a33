"""Where states are wanted: few, and none twice."""

from ninfer_proxy.planning.anchors import wanted_anchors
from ninfer_proxy.planning.policy import Policy
from ninfer_proxy.types import AnchorKind, LineRole, PromptLayout

POLICY = Policy()


def wanted(
    layout: PromptLayout, role: LineRole = LineRole.MAIN, branch: int | None = None
) -> list[tuple[str, int, int]]:
    anchors = wanted_anchors(layout, role, POLICY, branch)
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
    assert wanted(PromptLayout(head=1, messages=5, transient=4)) == [
        ("head", 1, 0),
        ("transient", 4, 0),
        ("prompt_end", 5, 0),
        ("head", 1, 256),
    ]


def test_no_place_is_asked_for_twice() -> None:
    layout = PromptLayout(head=1, messages=3, transient=1, explicit=(1, 2, 2, 3, 9))
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
    layout = PromptLayout(head=1, messages=9, transient=8, explicit=(5,))
    assert wanted(layout, LineRole.SIDE) == [("head", 1, 0), ("transient", 8, 0)]


def test_a_prompt_of_nothing_but_a_head_is_its_own_end() -> None:
    assert wanted(PromptLayout(head=1, messages=1)) == [("head", 1, 0), ("rewind", 1, 256)]
