"""The ladder: whose turn is this? Knows stored lines as values; finds none itself.

    side request known by its marks          → the side line of its session and head
    previous_response_id                     → that response's line
    session or cache key, then own ids that come back, then the longest chain of items
    nothing                                  → new

A session names a scope, not a conversation: what comes under it with another head (tools, instructions) and doesn't carry the
main line on is a side line beside it, and never moves it.
"""

from collections.abc import Sequence

from ninfer_proxy.identity import sight
from ninfer_proxy.identity.canonical import digests, head_digest, head_length
from ninfer_proxy.identity.clients import appends, family_of
from ninfer_proxy.identity.compare import Comparison, compare
from ninfer_proxy.identity.request import Request
from ninfer_proxy.identity.scope import (
    Level,
    is_subagent,
    level,
    purpose,
    scope_of,
    side_kind_of,
)
from ninfer_proxy.identity.verdict import continued, fresh, side
from ninfer_proxy.types import (
    ConversationId,
    Identity,
    Item,
    ItemDigest,
    LineRole,
    Match,
    StoredLine,
    Turn,
)

ONE_TURN_ITEMS = 2
"""A line this short has had one question and one answer."""


def identify(
    turn: Turn, items: Sequence[Item], known: Sequence[ItemDigest | None] = ()
) -> Identity:
    """What a turn says about whose it is. `items` is its whole history, previous responses and references expanded; `known` are
    the digests of its first items, as far as they have been worked out before.
    """
    head_items = head_length(items)
    seen = sight.look(turn, items, head_items, appends)
    family = family_of(seen)
    scope, evidence = scope_of(family, seen)
    side_kind = side_kind_of(family, seen)
    if (named := purpose(scope)) is not None:
        scope, side_kind = named[0], side_kind or named[1]
    if side_kind is not None and not scope:
        scope = f"{Level.SIDE}:{family.name}:{side_kind}"
    return Identity(
        scope=scope,
        scope_evidence=evidence,
        family=family.name,
        head=head_digest(turn.tools, turn.instructions, items[:head_items]),
        head_items=head_items,
        digests=digests(items, known)[head_items:],
        side_kind=side_kind,
        is_subagent=is_subagent(family, seen),
    )


def resolve(
    turn: Turn,
    identity: Identity,
    lines: Sequence[StoredLine],
    parent: StoredLine | None,
    minted: Sequence[ConversationId],
) -> Match:
    """The match of a turn among the lines of its tenant that it could belong to.

    `lines` are those of its scope, those that open with the same item, and those of `minted`, the conversations whose ids
    came back in the items. `parent` is the line of `previous_response_id`.
    """
    request = Request.of(turn, identity, minted)
    known = {line.conversation: line for line in (*lines, *([parent] if parent else ()))}
    seen = [compare(line, request.chain) for line in known.values()]
    above = None
    if parent is not None and not request.other_agent(parent):
        above = next(each for each in seen if each.line is known[parent.conversation])
    if identity.side_kind is not None:
        return _known_side(request, seen, above)
    return (
        _by_parent(request, seen, above)
        or _by_scope(request, seen)
        or _by_ids_alone(request, seen)
        or _by_chain(request, seen)
        or fresh(request, seen)
    )


def _known_side(request: Request, seen: Sequence[Comparison], above: Comparison | None) -> Match:
    """A side request of a known kind: a line of its own in its scope, whatever the main line has in common with it."""
    own = _side_line(request, [each for each in seen if request.in_scope(each)])
    if above is not None and above.line.role is LineRole.SIDE and request.same_head(above):
        own = above
    return side(request, own, _main_of(request, seen, above), "known by its text")


def _by_parent(
    request: Request, seen: Sequence[Comparison], above: Comparison | None
) -> Match | None:
    if above is None:
        return None
    evidence = "previous_response_id names a response of this conversation"
    if above.line.role is LineRole.MAIN:
        return continued(request, above, evidence)
    mains = [each for each in seen if _is_main(each) and request.in_scope(each)]
    main = _best(request, [each for each in mains if request.same_head(each)])
    if main is not None and not request.same_head(above):
        return continued(request, main, "the session's main line has this head")
    if request.asks:
        return continued(request, above, "a user goes on with what was a side request")
    return side(request, above, _main_of(request, seen, None), evidence)


def _by_scope(request: Request, seen: Sequence[Comparison]) -> Match | None:
    """Within a session or cache key. None: it says nothing about this request."""
    if level(request.scope) not in (Level.SESSION, Level.KEY):
        return None
    inside = [each for each in seen if request.in_scope(each)]
    mains = [each for each in inside if _is_main(each)]
    best = _best(request, [each for each in mains if _carries_on(request, each)])
    if best is not None:
        return continued(request, best, request.scope_evidence)
    sides = [each for each in inside if not _is_main(each)]
    if (promoted := _promoted(request, sides)) is not None:
        return promoted
    own = _side_line(request, inside)
    carried_on = own is not None and own.complete and own.known > 0
    if not mains or (not carried_on and _is_own_conversation(request, mains)):
        return None
    return side(
        request,
        own,
        _main_of(request, inside, None),
        f"{request.scope_evidence} is a known one, but tools or instructions are others and its main line isn't carried on",
    )


def _by_ids_alone(request: Request, seen: Sequence[Comparison]) -> Match | None:
    """A conversation's items with its ids, but without any of its tools: a job that an agent does on the side, such as asking
    once more for the answer that should have followed its tool calls. OpenClaw sends those without a session.
    """
    if not request.is_bare(request.head):
        return None
    mains = [each for each in seen if _is_main(each) and request.brought_back(each)]
    main = _best(request, [each for each in mains if not request.is_bare(each.line.head)])
    if main is None:
        return None
    sides = [each for each in seen if each.line.parent == main.line.conversation]
    evidence = "ids given out in a conversation came back without its tools"
    return side(request, _side_line(request, sides), main, evidence)


def _by_chain(request: Request, seen: Sequence[Comparison]) -> Match | None:
    """By content, across scopes."""
    related = [
        each
        for each in seen
        if request.compatible(each) and _is_main(each) and _related(request, each)
    ]
    best = _best(request, related)
    if best is None:
        outside = [each for each in seen if request.compatible(each) and not _is_main(each)]
        return _promoted(request, outside)
    if request.brought_back(best) and best.prefix == 0:
        return continued(request, best, "ids given out in this conversation came back")
    return continued(request, best, "its items carry this conversation on")


def _carries_on(request: Request, each: Comparison) -> bool:
    """Within its scope: is this request a turn of that main line?"""
    if level(request.scope) is Level.KEY:
        return _related(request, each)
    if request.same_head(each):
        return True
    return (each.complete and each.known > 0) or request.compacts(each)


def _related(request: Request, each: Comparison) -> bool:
    """By content alone: an answer in common, or the one question that is asked again."""
    if each.complete and each.known > 0:
        return request.same_head(each) or request.answered(each.known)
    if not request.same_head(each):
        return request.brought_back(each) and each.prefix > 0
    if request.brought_back(each) or request.answered(each.prefix):
        return True
    asked_again = 0 < each.prefix == len(request.chain)
    return asked_again and each.replaced <= ONE_TURN_ITEMS


def _is_own_conversation(request: Request, mains: Sequence[Comparison]) -> bool:
    """Under a scope that has a main line with another head: is this a main line too, not a side request?

    It is when it has tools while the scope has only seen a single question without any (a title job that came first),
    when it brings a history that has nothing of a main line, or when a cache key is shared by conversations with one head.
    """
    if level(request.scope) is Level.KEY and any(request.same_head(each) for each in mains):
        return True
    only_bare = all(
        request.is_bare(each.line.head) and len(each.line.chain) <= ONE_TURN_ITEMS for each in mains
    )
    if only_bare and not request.is_bare(request.head):
        return True
    return request.answered(len(request.chain)) and all(each.known == 0 for each in mains)


def _promoted(request: Request, sides: Sequence[Comparison]) -> Match | None:
    """A side line that a user goes on with was a conversation all along."""
    grown = [
        each
        for each in sides
        if each.complete
        and request.same_head(each)
        and request.answered(each.known)
        and request.asks
    ]
    best = _best(request, grown)
    if best is None:
        return None
    return continued(request, best, "a user goes on with what was a side request")


def _side_line(request: Request, inside: Sequence[Comparison]) -> Comparison | None:
    """The scope's side line of this kind or head; one that runs is only taken by what carries it on."""
    free = [
        each
        for each in inside
        if not _is_main(each)
        and (request.same_head(each) or request.same_kind(each))
        and (each.line.in_flight == 0 or (each.complete and each.known > 0))
    ]
    return _best(request, free)


def _main_of(
    request: Request, seen: Sequence[Comparison], above: Comparison | None
) -> Comparison | None:
    """The main line that a side request belongs to, as far as anything tells."""
    if above is not None and _is_main(above):
        return above
    mains = [each for each in seen if _is_main(each)]
    inside = [each for each in mains if request.in_scope(each)]
    outside = [each for each in mains if each.prefix > 0 or request.brought_back(each)]
    return _best(request, inside) or _best(request, outside)


def _best(request: Request, some: Sequence[Comparison]) -> Comparison | None:
    return max(
        some,
        key=lambda each: (
            each.complete and each.known > 0,
            request.same_head(each),
            each.shared,
            request.brought_back(each),
            each.line.last_used_at,
            each.line.conversation,
        ),
        default=None,
    )


def _is_main(each: Comparison) -> bool:
    return each.line.role is LineRole.MAIN
