"""What planning needs to explain a turn, from what was recognised, stored and dropped. Pure; explains nothing itself."""

import re
from collections.abc import Sequence
from dataclasses import replace

from ninfer_proxy.backends.base import BackendStatus
from ninfer_proxy.compared import HeadText
from ninfer_proxy.identity.clients import side_hint
from ninfer_proxy.identity.difference import describe
from ninfer_proxy.identity.head_difference import first_change, respelled
from ninfer_proxy.identity.stabilise import steady_head
from ninfer_proxy.planning.explain import Drop, Facts
from ninfer_proxy.store.records import StoredDrop, StoredResponse
from ninfer_proxy.turn.recognised import Recognised
from ninfer_proxy.types import Item, Turn


def facts_of(
    recognised: Recognised,
    last: StoredResponse | None,
    drops: Sequence[StoredDrop],
    status: BackendStatus,
) -> Facts:
    """What planning needs to explain a turn, counted in messages of its prompt."""
    turn, match, line = recognised.turn, recognised.match, recognised.line
    counts = recognised.message_counts
    diverged = match.divergence.item_index if match.divergence else None
    return Facts(
        known_messages=counts[match.known_items],
        head_messages=counts[recognised.identity.head_items],
        shared_messages=None if diverged is None else counts[diverged],
        engine_restarted=last is not None and last.engine_generation != status.generation,
        model_changed=last is not None and last.weights_id not in (None, weights_of(status)),
        effort_changed=last is not None and last.effort != effort_of(turn),
        older_parent=turn.previous_response_id is not None
        and line is not None
        and line.tip_response != turn.previous_response_id,
        drops=tuple(
            Drop(checkpoint.position, checkpoint.tier, drop.reason)
            for drop in drops
            for checkpoint in drop.checkpoints
        ),
        hint=side_hint(match.side_kind) if match.side_kind else "",
        stabilised=recognised.steady.changes,
    )


def with_differences(
    facts: Facts, recognised: Recognised, stored: Sequence[Item], before: HeadText | None
) -> Facts:
    """The facts with where the turn differs from the line's items `stored` and its last head as it was sent, `before`."""
    match, now, line = recognised.match, recognised.steady.head, recognised.line
    steady = steady_head(before, recognised.kinds)[0] if before else None
    difference = describe(stored, recognised.items, match, steady, now)
    same_head = line is not None and line.head == recognised.identity.head
    if before is None or steady is None or not same_head:
        return replace(facts, difference=difference)
    changed = first_change(before, recognised.steady.sent) if recognised.steady.changes else None
    return replace(
        facts,
        difference=difference,
        respelled=respelled(steady, now),
        head_known=True,
        steady_messages=None if changed is None else _messages_before(changed, recognised),
        steady_tools=changed == "tools",
    )


def weights_of(status: BackendStatus) -> str | None:
    """The weights that the engine has loaded; None until it has said so."""
    return status.ready.weights_id if status.ready else None


def effort_of(turn: Turn) -> str | None:
    """The reasoning setting as it is recorded: switched off is an effort too, and so is leaving earlier reasoning out."""
    effort = "none" if turn.thinking is False else turn.effort
    if turn.preserve_thinking:
        return effort
    return f"{effort or 'default'}, earlier reasoning left out"


def _messages_before(part: str, recognised: Recognised) -> int:
    """The prompt's messages before a part of its head: "tools", "instructions" or "input[i]"."""
    index = re.fullmatch(r"input\[(\d+)\]", part)
    return recognised.message_counts[int(index[1])] if index else 0
