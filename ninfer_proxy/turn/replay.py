"""Which stored output each assistant turn of a history is. Knows the store's outputs and digests; no tokens.

Agents say the same words again and again ("Done."), each time after other thoughts. So a turn is known by its output, then by
what it answered, then by where it stands; of those that still can't be told apart (regenerated turns) the latest counts.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ninfer_proxy.identity.canonical import group_digest
from ninfer_proxy.prompt import AssistantGroup, ReplayedOutput, cut_turns, possible_turns
from ninfer_proxy.store.records import StoredOutput
from ninfer_proxy.turn.remembered import Known
from ninfer_proxy.types import ConversationId, Identity, Item, ItemDigest

if TYPE_CHECKING:
    from ninfer_proxy.store.store import Store


NOTHING_KNOWN = Known()


class KnownOutputs:
    """Outputs of one conversation by what they say and what they answered."""

    def __init__(self, stored: Mapping[ItemDigest, Sequence[StoredOutput]]) -> None:
        self._found: dict[tuple[ItemDigest, ItemDigest | None], list[StoredOutput]] = {}
        for name, outputs in stored.items():
            for output in sorted(outputs, key=_behind):
                for asked in {None, *output.asked}:
                    self._found.setdefault((name, asked), []).append(output)

    def find(self, name: ItemDigest, asked: ItemDigest | None, behind: int) -> StoredOutput | None:
        """The output `name` that answered `asked`, if any did, and stood nearest to `behind` counted items."""
        some = self._found.get((name, asked)) or self._found.get((name, None))
        if not some:
            return None
        at = bisect_right(some, behind, key=_behind)
        around = some[max(0, at - 1) : at + 1]
        # Of two as near the one behind: a prompt may have ended with an item that was taken back.
        nearest = min(reversed(around), key=lambda each: abs(each.behind - behind))
        return some[bisect_right(some, nearest.behind, key=_behind) - 1]


def _behind(output: StoredOutput) -> int:
    return output.behind


async def assistant_turns(
    store: "Store",
    items: Sequence[Item],
    identity: Identity,
    owners: Iterable[ConversationId | None],
    past: Known = NOTHING_KNOWN,
) -> dict[AssistantGroup, ReplayedOutput | None]:
    """The assistant turns in a history, each with what the engine produced for it where one of `owners` knows that.

    The last owner that knows it is believed. Those of a `past` turn are what they were.
    """
    start, known_turns = past.turns(items)
    groups = possible_turns(items, identity.digests, identity.head_items, start)
    names = {group: group_digest(counted) for group, counted in groups.items()}
    before: list[ItemDigest] = []
    places: dict[int, tuple[ItemDigest | None, int]] = {}
    for place, digest in enumerate(identity.digests, identity.head_items):
        places[place] = (before[-1] if before else None, len(before))
        if digest is not None:
            before.append(digest)
    known: dict[AssistantGroup, ReplayedOutput] = {}
    for owner in dict.fromkeys(owners):
        if owner is None or not names:
            continue
        outputs = KnownOutputs(await store.outputs(owner, set(names.values())))
        for group, name in names.items():
            if (found := outputs.find(name, *places[group.start])) is not None:
                known[group] = ReplayedOutput(found.reasoning, found.ledger)
    return {**known_turns, **cut_turns(items, known, start)}
