"""A decided case → Match, with the evidence in words. Knows how a match is told, not how it is found."""

from collections.abc import Sequence

from ninfer_proxy.identity.compare import Comparison
from ninfer_proxy.identity.request import Request
from ninfer_proxy.types import Divergence, LineRole, Match, MatchKind
from ninfer_proxy.wording import agreeing, counted


def continued(request: Request, each: Comparison, evidence: str) -> Match:
    """A turn of that main line: an append, a rewind, or a fork while another turn of it runs."""
    compacted = request.compacts(each)
    return Match(
        kind=MatchKind.FORKS if each.line.in_flight else MatchKind.CONTINUES,
        role=LineRole.MAIN,
        conversation=each.line.conversation,
        shared=each.shared,
        evidence=(evidence, *_common(request, each), *_state(each)),
        parent=each.line.parent,
        compared_with=each.line.conversation,
        head_changed=_head_changed(request, each),
        divergence=_divergence(request, each),
        compacted=compacted,
        known_items=_known_items(request, each),
    )


def side(request: Request, own: Comparison | None, main: Comparison | None, evidence: str) -> Match:
    """A side request, on its own line (`own`, None: a new one) beside the main one."""
    compared = own
    if main is not None and (
        own is None or (request.same_head(main) and main.shared >= own.shared)
    ):
        compared = main
    kind = request.identity.side_kind
    return Match(
        kind=MatchKind.SIDE,
        role=LineRole.SIDE,
        conversation=own.line.conversation if own else None,
        shared=compared.shared if compared else 0,
        evidence=(f"{kind}: {evidence}" if kind else evidence,),
        parent=main.line.conversation if main else own.line.parent if own else None,
        compared_with=compared.line.conversation if compared else None,
        head_changed=_head_changed(request, compared) if compared else (),
        divergence=_divergence(request, compared) if compared else None,
        side_kind=kind,
        known_items=_known_items(request, compared) if compared else 0,
    )


def fresh(request: Request, seen: Sequence[Comparison]) -> Match:
    """A conversation not seen before; `compared_with` is the line that comes nearest, if any shares an item."""
    nearest = max(
        (each for each in seen if each.prefix > 0),
        key=lambda each: (request.same_head(each), each.prefix, each.line.last_used_at),
        default=None,
    )
    evidence = "no stored conversation has these items"
    if nearest is not None:
        evidence = f"shares {counted(nearest.prefix, 'item')} with another conversation, which it doesn't carry on"
    return Match(
        kind=MatchKind.NEW,
        role=LineRole.MAIN,
        conversation=None,
        shared=nearest.prefix if nearest else 0,
        evidence=(evidence, *([request.scope_evidence] if request.scope else ())),
        compared_with=nearest.line.conversation if nearest else None,
    )


def _common(request: Request, each: Comparison) -> tuple[str, ...]:
    stored, dropped = len(each.line.chain), len(each.dropped)
    items = counted(stored, "item")
    if each.complete and dropped:
        come = agreeing(stored - dropped, "comes", "come")
        return (f"all of its {items} but {dropped:,} {come} again",)
    if each.complete:
        return (f"all of its {items} {agreeing(stored, 'comes', 'come')} again",) if stored else ()
    if each.prefix == 0:
        return (f"none of its {items} comes again",)
    come = agreeing(each.prefix, "comes", "come")
    return (f"the first {each.prefix:,} of its {items} {come} again",)


def _state(each: Comparison) -> tuple[str, ...]:
    return ("another turn of it is running",) if each.line.in_flight else ()


def _head_changed(request: Request, each: Comparison) -> tuple[str, ...]:
    """What of the head is another. A line that has only a head yet is carried on by whatever follows (a warm-up in parts)."""
    if not each.line.chain and each.line.head.tools == request.head.tools:
        return ()
    changed = {
        "tools": each.line.head.tools != request.head.tools,
        "instructions": each.line.head.instructions != request.head.instructions,
    }
    return tuple(name for name, differs in changed.items() if differs)


def _divergence(request: Request, each: Comparison) -> Divergence | None:
    if each.complete and not each.dropped:
        return None
    at = each.prefix
    return Divergence(
        stored_index=at,
        item_index=request.places[at] if at < len(request.places) else None,
        transient=each.complete,
    )


def _known_items(request: Request, each: Comparison) -> int:
    return request.places[each.known - 1] + 1 if each.known else request.identity.head_items
