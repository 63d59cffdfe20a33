"""The admin API's JSON, from values. Pure; documented here because scripts read it. Times are Unix seconds, sizes bytes.

slots     {"slots": [slot]}
slot      slot, conversation, client, class (running, waiting_for_tool, recent, idle, finished_subagent, side), pinned_until,
          tokens (longest checkpoint), bytes, checkpoints [checkpoint], last_used_at, in_flight, hits, tokens_prefilled,
          tokens_reused, last_reason (why prompt tokens were last computed again), role, scope, family, side_kind,
          parent, continuation
show      the slot's fields (slot null where it holds none; class null too), tenant, tip_response, created_at, items,
          line_items, responses [brief], drops [drop]
brief     response, created_at, status, reason, prompt_tokens, reused_tokens, prefilled_tokens, output_tokens
drop      at, reason, tokens (what it covered), bytes, checkpoints
explain   brief's fields, completed_at, conversation, previous_response, slot, detail (the reason as a sentence), match,
          evidence, difference (first differing item and character in words), differs_at (its place, such as
          "input[7]:23" or "tools[3].description:17"), stabilised (what was changed in the head, a sentence each),
          saved_tokens (about so many are reused only thanks to that; null where it can't be told), source_tier, source_kind, input_tokens,
          cached_tokens, reasoning_tokens, model, effort, prompt_items, output_items, engine_generation,
          retrievable, deleted, plan (what was decided before)
status    engine {state, detail, model, device, weights, context_tokens, max_lanes, restarts, generation}, waiting,
          lanes [lane], tiers [{tier, used_bytes, total_bytes}], counters; the last four are null while the engine is away
lane      lane, conversation, request, prompt_tokens, computed_tokens, output_tokens
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from engine.api import Snapshot
from ninfer_proxy.backends.base import BackendStatus
from ninfer_proxy.store.records import (
    ConversationDetail,
    StoredConversation,
    StoredDrop,
    StoredResponse,
)
from ninfer_proxy.types import (
    CheckpointInfo,
    ContinuationId,
    ConversationId,
    SlotClass,
    SlotState,
)

View = dict[str, Any]


def slot_view(
    state: SlotState, stored: StoredConversation | None, kind: SlotClass, now: float
) -> View:
    """`stored` is None for a conversation whose first turn still runs."""
    return {
        "slot": state.slot,
        "conversation": state.conversation,
        "client": stored.client if stored else "",
        "class": kind,
        "pinned_until": _lease(state.pinned_until, now),
        "tokens": state.tokens,
        "bytes": state.bytes,
        "checkpoints": [checkpoint_view(each) for each in state.checkpoints],
        "last_used_at": state.last_used_at,
        "in_flight": state.in_flight,
        "continuation": state.continuation,
        "role": state.role,
        **_counters(stored),
    }


def _counters(stored: StoredConversation | None) -> View:
    return {
        "hits": stored.hits if stored else 0,
        "tokens_prefilled": stored.tokens_prefilled if stored else 0,
        "tokens_reused": stored.tokens_reused if stored else 0,
        "last_reason": stored.last_reason if stored else None,
        "scope": stored.scope if stored else "",
        "family": stored.family if stored else "",
        "side_kind": stored.side_kind if stored else None,
        "parent": stored.parent if stored else None,
    }


def _lease(until: float | None, now: float) -> float | None:
    return until if until is not None and until > now else None


def checkpoint_view(checkpoint: CheckpointInfo) -> View:
    return {
        "checkpoint": checkpoint.checkpoint,
        "kind": checkpoint.kind,
        "position": checkpoint.position,
        "tier": checkpoint.tier,
        "bytes": checkpoint.bytes,
    }


def show_view(detail: ConversationDetail, slot: View | None, now: float) -> View:
    """`slot` is the view of the slot that the conversation holds, None where it holds none."""
    stored = detail.conversation
    held = slot or {
        "slot": None,
        "conversation": stored.id,
        "client": stored.client,
        "class": None,
        "pinned_until": _lease(stored.pinned_until, now),
        "tokens": stored.tokens,
        "bytes": stored.bytes,
        "checkpoints": [checkpoint_view(each) for each in stored.checkpoints],
        "last_used_at": stored.last_used_at,
        "in_flight": 0,
        "continuation": stored.continuation,
        "role": stored.role,
        **_counters(stored),
    }
    return {
        **held,
        "tenant": stored.tenant,
        "tip_response": stored.tip_response,
        "created_at": stored.created_at,
        "items": detail.items,
        "line_items": detail.line_items,
        "responses": [brief_view(each) for each in detail.responses],
        "drops": [drop_view(each) for each in detail.drops],
    }


def brief_view(response: StoredResponse) -> View:
    decision = response.decision
    return {
        "response": response.id,
        "created_at": response.created_at,
        "status": response.status,
        "reason": decision.reason,
        "prompt_tokens": decision.prompt_tokens,
        "reused_tokens": decision.reused_tokens,
        "prefilled_tokens": decision.prefilled_tokens,
        "output_tokens": response.usage.output_tokens,
    }


def drop_view(drop: StoredDrop) -> View:
    return {
        "at": drop.at,
        "reason": drop.reason,
        "tokens": drop.tokens,
        "bytes": drop.bytes,
        "checkpoints": [checkpoint_view(each) for each in drop.checkpoints],
    }


def explain_view(response: StoredResponse) -> View:
    decision = response.decision
    return {
        **brief_view(response),
        "completed_at": response.completed_at,
        "conversation": response.conversation,
        "previous_response": response.previous_response,
        "slot": decision.slot,
        "detail": decision.detail,
        "match": decision.match,
        "evidence": list(decision.evidence),
        "difference": decision.difference,
        "differs_at": decision.differs_at,
        "stabilised": list(decision.stabilised),
        "saved_tokens": decision.saved_tokens,
        "source_tier": decision.source_tier,
        "source_kind": decision.source_kind,
        **asdict(response.usage),
        "model": response.model,
        "weights": response.weights_id,
        "effort": response.effort,
        "prompt_items": response.prompt_items,
        "output_items": response.output_items,
        "engine_generation": response.engine_generation,
        "retrievable": response.retrievable,
        "deleted": response.deleted,
        "plan": response.plan,
    }


def status_view(
    backend: BackendStatus,
    snapshot: Snapshot | None,
    owners: Mapping[ContinuationId, ConversationId],
) -> View:
    """`snapshot` is None while the engine is away."""
    ready = backend.ready
    engine = {
        "state": backend.state,
        "detail": backend.detail,
        "model": ready and ready.model,
        "device": ready and ready.device,
        "weights": ready and ready.weights_id,
        "context_tokens": ready and ready.context_tokens,
        "max_lanes": ready and ready.max_lanes,
        "restarts": backend.restarts,
        "generation": backend.generation,
    }
    if snapshot is None:
        nothing: View = dict.fromkeys(("waiting", "restoring", "lanes", "tiers", "counters"))
        return {"engine": engine, **nothing}
    return {
        "engine": engine,
        "waiting": snapshot.waiting,
        "restoring": snapshot.restoring,
        "lanes": _lanes(snapshot, owners),
        "tiers": [asdict(each) for each in snapshot.tiers],
        "counters": dict(snapshot.counters),
    }


def _lanes(snapshot: Snapshot, owners: Mapping[ContinuationId, ConversationId]) -> Sequence[View]:
    return [
        {
            "lane": lane.lane,
            "conversation": owners.get(lane.continuation),
            "request": lane.request_id,
            "prompt_tokens": lane.prompt_tokens,
            "computed_tokens": lane.computed_tokens,
            "output_tokens": lane.output_tokens,
        }
        for lane in snapshot.lanes
    ]
