"""What planning needs to explain a turn, from what was recognised, stored and dropped. Pure; explains nothing itself."""

import re
from collections.abc import Sequence
from dataclasses import replace

from ninfer_proxy.backends.base import BackendStatus
from ninfer_proxy.compared import HeadText
from ninfer_proxy.identity.clients import side_hint
from ninfer_proxy.identity.difference import describe
from ninfer_proxy.identity.head_difference import first_change, respelled, tools_respelled
from ninfer_proxy.identity.stabilise import steady_head
from ninfer_proxy.planning.explain import Drop, Facts
from ninfer_proxy.store.records import StoredDrop, StoredResponse
from ninfer_proxy.turn.recognised import Recognised
from ninfer_proxy.types import ConversationId, Item, SlotState, Turn


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
    known = replace(facts, difference=difference)
    head = recognised.identity.head
    if before is None or steady is None or line is None or line.head.tools != head.tools:
        return known
    if line.head != head:
        return replace(known, respelled=tools_respelled(steady.tools, now.tools))
    changed = first_change(before, recognised.steady.sent) if recognised.steady.changes else None
    return replace(
        known,
        respelled=respelled(steady, now),
        head_known=True,
        steadied_at=None if changed is None else _place_of(*changed, recognised),
    )


def positions(slots: Sequence[SlotState], conversation: ConversationId) -> tuple[int, ...]:
    """Where the conversation's states stand, as recorded with its last turn."""
    return tuple(
        checkpoint.position
        for slot in slots
        if slot.conversation == conversation
        for checkpoint in slot.checkpoints
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


def _place_of(part: str, share: float, recognised: Recognised) -> float:
    """A place in a part of the prompt's head, counted in messages; the tools before them are -1 … 0."""
    if part == "tools":
        return share - 1
    index = re.fullmatch(r"input\[(\d+)\]", part)
    before, until = (0, 1) if index is None else recognised.message_counts[int(index[1]) :][:2]
    return before + share * (until - before)
