"""What a request's input stands for: stored history, item references and pairs of calls and outputs. Knows the store, no wire format.

`previous_response_id` stands for the prompt and output of that response; clients repeat the calls they answer, and
those aren't taken twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ninfer_proxy.errors import InvalidRequest, OrphanOutput, PreviousResponseNotFound
from ninfer_proxy.identity.canonical import digest
from ninfer_proxy.turn.remembered import Known, LastTurns
from ninfer_proxy.types import (
    ConversationId,
    FunctionCallItem,
    FunctionOutputItem,
    Item,
    ItemDigest,
    ItemReference,
    ResponseId,
    TenantKey,
    Turn,
)

if TYPE_CHECKING:
    from ninfer_proxy.store.store import Store


CALLS_AND_OUTPUTS = (FunctionCallItem, FunctionOutputItem)


@dataclass(frozen=True, slots=True)
class History:
    """All items of a turn in order, and what is `known` of the first of them. `parent` is the conversation of `previous_response_id`."""

    items: tuple[Item, ...]
    parent: ConversationId | None
    known: Known = Known()


async def expand(store: "Store", last_turns: LastTurns, turn: Turn) -> History:
    """The whole history of a turn. Errors: PreviousResponseNotFound, InvalidRequest, OrphanOutput."""
    fresh = await _resolve_references(store, turn)
    if turn.previous_response_id is None:
        check_pairs(fresh)
        known = last_turns.beginning(turn.tenant, fresh)
        known_items = tuple(each.item for each in known.items)
        return History(known_items + fresh[len(known_items) :], None, known)
    parent, stored, known = await _named(store, last_turns, turn.tenant, turn.previous_response_id)
    items = (*stored, *without_repeats(stored, fresh))
    check_pairs(items)
    return History(items, parent, known)


async def _named(
    store: "Store", last_turns: LastTurns, tenant: TenantKey, response: ResponseId
) -> tuple[ConversationId, tuple[Item, ...], Known]:
    """The conversation and the items of a stored response, remembered or read. Errors: PreviousResponseNotFound."""
    last = last_turns.named(tenant, response)
    if last is not None:
        return last.conversation, tuple(each.item for each in last.items), Known(last, last.items)
    stored = await store.history(tenant, response)
    if stored is None:
        raise PreviousResponseNotFound
    return stored.conversation, stored.items, Known()


async def _resolve_references(store: "Store", turn: Turn) -> tuple[Item, ...]:
    ids = {item.item_id for item in turn.items if isinstance(item, ItemReference)}
    if not ids:
        return turn.items
    found = await store.resolve_references(turn.tenant, ids)
    if missing := sorted(ids - found.keys()):
        raise InvalidRequest(
            f"No stored item has the id {missing[0]!r}. Send the item itself.", param="input"
        )
    return tuple(
        found[item.item_id] if isinstance(item, ItemReference) else item for item in turn.items
    )


def without_repeats(stored: Sequence[Item], fresh: Sequence[Item]) -> tuple[Item, ...]:
    """`fresh` without the calls and outputs that `stored` already has: the same under the same call id.

    The id alone doesn't make a repeat: some clients count their calls anew in each request.
    """
    ids = {item.call_id for item in fresh if isinstance(item, CALLS_AND_OUTPUTS)}
    again = (item for item in stored if isinstance(item, CALLS_AND_OUTPUTS) and item.call_id in ids)
    known = {_pair_key(item) for item in again}
    return tuple(
        item
        for item in fresh
        if not isinstance(item, CALLS_AND_OUTPUTS) or _pair_key(item) not in known
    )


def check_pairs(items: Sequence[Item]) -> None:
    """Each output needs its call before it. Errors: OrphanOutput, which names the id."""
    called: set[str] = set()
    for item in items:
        if isinstance(item, FunctionCallItem):
            called.add(item.call_id)
        elif isinstance(item, FunctionOutputItem) and item.call_id not in called:
            raise OrphanOutput(
                f"No function call has the call_id {item.call_id!r} that an output answers. "
                "Send the call before its output, or the previous_response_id that made it.",
                param="input",
            )


def _pair_key(item: FunctionCallItem | FunctionOutputItem) -> tuple[str, ItemDigest | None]:
    """What makes a call or an output the same one again."""
    return item.call_id, digest(item)
