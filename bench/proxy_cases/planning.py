"""How long a turn's plan takes among many continuations. Pure: no process, no store.

Counted is the thread's time on a core: there is nothing else to wait for, but for whoever else uses the machine.
"""

import time
from dataclasses import replace

from bench.proxy_cases.given import ProxyBench, at, load, ms
from bench.registry import Bar, Case, Measured, WrongAnswer
from ninfer_proxy.planning.plan import plan_turn
from ninfer_proxy.planning.policy import Policy
from ninfer_proxy.types import (
    AnchorKind,
    CheckpointId,
    CheckpointInfo,
    ContinuationId,
    ConversationId,
    LineRole,
    Match,
    MatchKind,
    PromptLayout,
    SlotState,
    Tier,
    TurnPlan,
)

CONTINUATIONS, PLANS = 1_000, 4_000
NOW = 1_000_000.0
KINDS = (
    AnchorKind.HEAD,
    *(AnchorKind.LADDER,) * 3,
    *(AnchorKind.PROMPT_END,) * 4,
    AnchorKind.REWIND,
    AnchorKind.TIP,
)
LAYOUT = PromptLayout(head=1, messages=250, tail=("user", "user"))


def planning(bench: ProxyBench) -> Measured:
    """Half of the plans go on in a slot, half need one that another must give up."""
    policy = Policy(slots=CONTINUATIONS)
    slots = [slot(number) for number in range(CONTINUATIONS)]
    plan(slots, 0, policy)
    times = []
    for number in range(bench.share(PLANS)):
        begun = time.thread_time()
        made = plan(slots, number, policy)
        times.append(time.thread_time() - begun)
        require(made, number)
    beside = f"p50 {ms(at(times, 0.5))} of {len(times)} plans; {load()}"
    p99 = at(times, 0.99)
    return Measured(f"{len(slots)} continuations", beside, p99 * 1000)


def slot(number: int) -> SlotState:
    """A conversation with ten checkpoints, in use the longer ago the lower its number."""
    name = f"c{number}"
    checkpoints = tuple(
        CheckpointInfo(
            CheckpointId(f"{name}.{at}"),
            ContinuationId(name),
            kind,
            16_384 * (at + 1),
            Tier.DEVICE,
            1,
        )
        for at, kind in enumerate(KINDS)
    )
    return SlotState(
        slot=number,
        conversation=ConversationId(name),
        continuation=ContinuationId(name),
        role=LineRole.MAIN,
        last_used_at=NOW - CONTINUATIONS + number,
        checkpoints=checkpoints,
    )


def plan(slots: list[SlotState], number: int, policy: Policy) -> TurnPlan:
    """Even numbers: a turn of that conversation. Odd ones: a new one, where all slots are taken."""
    known = ConversationId(f"c{number % CONTINUATIONS}") if number % 2 == 0 else None
    kind = MatchKind.CONTINUES if known else MatchKind.NEW
    match = Match(kind, LineRole.MAIN, known, shared=248, evidence=("measured",))
    return plan_turn(match, slots, known or ConversationId("new"), LAYOUT, policy, NOW)


def require(made: TurnPlan, number: int) -> None:
    """Known ones stay where they are and go on from their tip; for a new one the longest unused makes way."""
    if number % 2 == 0:
        right = made.slot == number % CONTINUATIONS and not made.evictions
        right = right and made.expected_tokens == 16_384 * len(KINDS)
    else:
        right = [each.slot for each in made.evictions] == [0] and made.slot == 0
    if not right:
        raise WrongAnswer(f"plan {number} is wrong: {replace(made, anchors=())}")


CASES = (
    Case(
        "plan",
        "plan_turn with 1,000 continuations of ten checkpoints, p99",
        Bar(1, at_least=False, unit=" ms"),
        planning,
    ),
)
