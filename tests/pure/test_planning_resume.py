"""Where a prompt can go on: which checkpoints are usable, and what a plan expects of those that a conversation holds."""

from typing import Any

import pytest
from planning_values import NOW, checkpoint, match, slot

from ninfer_proxy.planning.plan import plan_turn
from ninfer_proxy.planning.policy import Policy
from ninfer_proxy.planning.resume import best_checkpoint, usable
from ninfer_proxy.types import AnchorKind, ConversationId, Divergence, PromptLayout


@pytest.mark.parametrize(
    ("position", "shared", "prompt", "expected"),
    [
        (100, 100, 200, True),
        (101, 100, 200, False),
        (200, 200, 200, False),
        (199, 200, 200, True),
        (0, 100, 200, False),
    ],
)
def test_a_state_is_usable_at_its_own_position_only(
    position: int, shared: int, prompt: int, expected: bool
) -> None:
    assert usable(position, shared, prompt) is expected


def test_the_longest_usable_checkpoint_is_the_best() -> None:
    known = [checkpoint(AnchorKind.HEAD, 50), checkpoint(AnchorKind.TIP, 90)]
    best = best_checkpoint([*known, checkpoint(AnchorKind.TIP, 120)], 100, 200)
    assert best is not None
    assert best.position == 90
    assert best_checkpoint(known, 20, 200) is None


HEAD, END, TIP = (
    checkpoint(AnchorKind.HEAD, 40),
    checkpoint(AnchorKind.PROMPT_END, 300),
    checkpoint(AnchorKind.TIP, 320),
)


@pytest.mark.parametrize(
    ("checkpoints", "matched", "expected"),
    [
        ((HEAD, END, TIP), {}, 320),
        ((HEAD, TIP, checkpoint(AnchorKind.PROMPT_END, 90)), {}, 90),  # after a rewind
        ((HEAD,), {}, 40),
        ((), {}, 0),
        ((HEAD, END, TIP), {"divergence": Divergence(2, 2)}, 0),
        ((HEAD, END, TIP), {"head_changed": ("tools",)}, 0),
    ],
)
def test_a_plan_expects_the_end_of_a_line_that_is_carried_on(
    checkpoints: Any, matched: Any, expected: int
) -> None:
    slots = [slot(0, checkpoints=checkpoints), slot(1, checkpoints=(HEAD, TIP))]
    plan = plan_turn(
        match("c0", **matched), slots, ConversationId("c0"), PromptLayout(1, 4), Policy(), NOW
    )
    assert plan.expected_tokens == expected


def test_a_new_conversation_expects_nothing() -> None:
    slots = [slot(1, checkpoints=(HEAD, TIP))]
    plan = plan_turn(match(None), slots, ConversationId("new"), PromptLayout(1, 4), Policy(), NOW)
    assert plan.expected_tokens == 0
