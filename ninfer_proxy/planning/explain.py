"""Why a response cost what it did: one true reason and a sentence that quotes nobody. Knows what was matched, planned and begun.

    0          reused              limit              known            prompt
    |-----------|-------------------|------------------|----------------|
      not computed   had been computed  had been computed   never seen before
                     before: a state    before: behind the
                     was missing        first difference

Computed again is `reused … known`. A few hundred tokens of it are the price of standing checkpoints (a hit all the same);
more has a cause, and the longer of the two parts tells which.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from engine.api import ResumeReason
from ninfer_proxy.compared import Difference
from ninfer_proxy.planning.losses import SUPERSEDED, remedy
from ninfer_proxy.types import (
    AnchorKind,
    Decision,
    LineRole,
    Match,
    MatchKind,
    Reason,
    Started,
    Tier,
    TurnPlan,
)
from ninfer_proxy.wording import agreeing, counted

SLACK_TOKENS = 300
"""Tokens computed again that don't count: the rest between a checkpoint and the first new item."""


@dataclass(frozen=True, slots=True)
class Drop:
    """A checkpoint this conversation has lost since its last turn. `reason` as the engine gave it."""

    position: int
    tier: Tier
    reason: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What the proxy knows of a conversation beside the match.

    `head_messages`, `known_messages` and `shared_messages` count the prompt's messages: those of its head, those up to
    `Match.known_items`, and those before the first item that differs (None: nothing does). `engine_restarted`,
    `model_changed` (other weights), `effort_changed` (effort or thinking): against the conversation's last turn.
    `older_parent`: previous_response_id names a response that is not the line's last. `difference` is the first one from the
    stored line; `respelled` how the head is written otherwise than in the last turn, although it means the same
    (None with `head_known`: it isn't). `hint` says what a client setting could do about a side request of this kind.

    `stabilised` is what was changed in the head; `steadied_at` the first place that would be another than in the last turn
    without that, in messages (2.5: in the middle of the third; -1 … 0: among the tools), None where nothing would, or it
    can't be told. `checkpoints` are the positions of this conversation's states before this turn.
    """

    known_messages: int
    head_messages: int = 0
    shared_messages: int | None = None
    engine_restarted: bool = False
    model_changed: bool = False
    effort_changed: bool = False
    older_parent: bool = False
    drops: tuple[Drop, ...] = ()
    difference: Difference | None = None
    respelled: Difference | None = None
    head_known: bool = False
    hint: str = ""
    stabilised: tuple[str, ...] = ()
    steadied_at: float | None = None
    checkpoints: tuple[int, ...] = ()


def explain(match: Match, plan: TurnPlan, started: Started, facts: Facts) -> Decision:
    """The explanation of a turn, from what was matched and planned and what the engine answered."""
    case = _Case(match, started, facts)
    reason, cause = case.verdict()
    difference = case.difference
    source = started.source
    return Decision(
        reason=reason,
        detail=f"{_figures(started)} {cause}".strip(),
        slot=plan.slot,
        conversation=plan.conversation,
        match=match.kind,
        evidence=match.evidence,
        prompt_tokens=started.prompt_tokens,
        reused_tokens=started.reused_tokens,
        source_tier=source.tier if source else None,
        source_kind=source.kind if source else None,
        difference=difference.told if difference else None,
        differs_at=difference.at if difference else None,
        stabilised=facts.stabilised,
        saved_tokens=case.saved,
    )


def settled(decision: Decision, reused_tokens: int) -> Decision:
    """The explanation once the turn has ended. Where it had to make way meanwhile, `reused_tokens` are others than at its start."""
    if reused_tokens == decision.reused_tokens:
        return decision
    told = (
        "It made way for others while it ran and had tokens computed again; "
        f"in the end {reused_tokens} of {decision.prompt_tokens} count as reused."
    )
    return replace(decision, reused_tokens=reused_tokens, detail=f"{decision.detail} {told}")


def _figures(started: Started) -> str:
    prefilled = started.prompt_tokens - started.reused_tokens
    if started.source is None:
        were = agreeing(prefilled, "was", "were")
        return f"All {counted(prefilled, 'prompt token')} {were} computed."
    reused = started.reused_tokens
    return (
        f"{reused:,} of {counted(started.prompt_tokens, 'prompt token')} {agreeing(reused, 'was', 'were')} reused "
        f"({started.source.kind} checkpoint, {started.source.tier}), {prefilled:,} computed."
    )


@dataclass(frozen=True, slots=True)
class _Case:
    match: Match
    started: Started
    facts: Facts

    @property
    def reused(self) -> int:
        return self.started.reused_tokens

    @property
    def known(self) -> int:
        """Tokens up to the last item that the line had already; a head at least."""
        return max(self._border(self.facts.known_messages), self._border(self.facts.head_messages))

    @property
    def limit(self) -> int:
        """Tokens up to the first difference from the line: so far a state could have been used."""
        if self.match.head_changed:
            return 0
        shared = self.facts.shared_messages
        return self.known if shared is None else min(self._border(shared), self.known)

    @property
    def saved(self) -> int | None:
        """Reused tokens that would have been computed without a steady head: those behind the last state before the change."""
        at = self.facts.steadied_at
        if at is None:
            return None
        borders = (0, *self.started.borders)
        below = min(int(at + 1), len(borders) - 1)
        above = min(below + 1, len(borders) - 1)
        change = borders[below] + (at + 1 - below) * (borders[above] - borders[below])
        usable = [each for each in self.facts.checkpoints if each <= change]
        return max(0, self.reused - max(usable, default=0))

    @property
    def difference(self) -> Difference | None:
        """The first one in the prompt: a head that is written otherwise stands before all items."""
        respelled = self.facts.respelled if self.is_respelled else None
        return respelled or self.facts.difference

    @property
    def is_respelled(self) -> bool:
        """Does the head mean what it meant in the last turn, but make other tokens?

        If instructions changed as well, tools that are written otherwise still come first.
        """
        matched, told = self.started.matched_tokens, self.facts.respelled
        if self.started.reason is ResumeReason.NOTHING_STORED or "tools" in self.match.head_changed:
            return False
        if told is not None and told.at.startswith("tools"):
            return matched < self._border(0)
        if self.match.head_changed or (told is None and self.facts.head_known):
            return False
        return matched < self._border(self.facts.head_messages)

    def verdict(self) -> tuple[Reason, str]:
        if self.match.kind is MatchKind.NEW:
            return Reason.NEW_CONVERSATION, self._new()
        if self.match.role is LineRole.SIDE:
            return self._side()
        # A summary is new text as well, but whoever sees it computed wants to know that it is one.
        prefilled = self.started.prompt_tokens - self.reused
        again = prefilled if self.match.compacted else self.known - self.reused
        nothing_to_reuse = self.known == 0 and self.match.divergence is None
        if again <= SLACK_TOKENS and (self.reused > 0 or nothing_to_reuse):
            return Reason.CACHE_HIT, self._hit()
        if self.facts.model_changed:
            return Reason.MODEL_CHANGED, "The model's weights are others than in the last turn."
        missing, behind = self.limit - self.reused, self.known - self.limit
        if missing > behind and (missing > SLACK_TOKENS or self.reused == 0):
            return self._missing()
        return self._changed()

    def _hit(self) -> str:
        rest = self.known - self.reused
        told = "Nothing but what is new was computed"
        if rest > 0:
            told += (
                f", and {counted(rest, 'token')} that {agreeing(rest, 'leads', 'lead')} up to it"
            )
        source = self.started.source
        if source is not None and source.kind is AnchorKind.TRANSIENT:
            told += "; that state was kept because this client takes back what follows it"
        elif self._goes_on_beyond_what_was_taken_back:
            told += "; the answer was computed beforehand as it stands without what the client took back"
        return f"{told}."

    @property
    def _goes_on_beyond_what_was_taken_back(self) -> bool:
        at = self.match.divergence
        taken_back = at is not None and at.transient and not self.match.head_changed
        return taken_back and self.reused > self.limit

    def _new(self) -> str:
        if self.reused == 0:
            return "It is the first turn of this conversation."
        return "It is the first turn of this conversation; what it begins with was there already."

    def _side(self) -> tuple[Reason, str]:
        """A side request is a hit only when it goes on from its own state or finds nearly all of its prompt."""
        kind = self.match.side_kind or "other tools or instructions"
        own = self.match.conversation is not None and self.match.shared > 0
        computed = self.known if own else self.started.prompt_tokens
        if self.reused > 0 and computed - self.reused <= SLACK_TOKENS:
            return Reason.CACHE_HIT, f"A side request ({kind}) that was nearly all there already."
        return (
            Reason.SIDE_REQUEST,
            f"It is a side request ({kind}) and ran in a scratch slot; the main line is untouched."
            + (f" {self.facts.hint}." if self.facts.hint else ""),
        )

    def _changed(self) -> tuple[Reason, str]:
        """The client sent something else than what was stored."""
        if "tools" in self.match.head_changed:
            return Reason.TOOLS_CHANGED, "The tools changed, and they stand first."
        if self.match.head_changed and self.is_respelled:
            return Reason.TOOLS_CHANGED, self._told_respelled()
        if self.match.compacted:
            return Reason.CONTEXT_COMPACTED, "The client replaced its history by a summary."
        if self.match.head_changed:
            return Reason.INSTRUCTIONS_CHANGED, "The instructions changed."
        if self.match.divergence is not None and self.match.divergence.transient:
            return (
                Reason.TRANSIENT_ITEM,
                "The client took back an item that only the last request had.",
            )
        if self.facts.older_parent or self.match.kind is MatchKind.FORKS:
            return Reason.BRANCH, "The turn branches off before the line's end."
        return Reason.INPUT_CHANGED, "The client changed its history."

    def _missing(self) -> tuple[Reason, str]:
        """The client sent what was stored, but the engine had no state to go on from there."""
        lost = self._lost()
        if self.started.reason is ResumeReason.STATE_REJECTED:
            return (
                Reason.STATE_REJECTED,
                "The engine found a state that it could not use: it was damaged on disk, or there was no memory for it.",
            )
        if self.facts.engine_restarted:
            return (
                Reason.ENGINE_RESTARTED,
                "The engine was restarted, and what was not on disk by then was gone.",
            )
        matched = self.started.matched_tokens
        other_tokens = 0 < matched < self.limit - SLACK_TOKENS
        if self.facts.respelled is not None and self.is_respelled:
            return Reason.TOOLS_CHANGED, self._told_respelled()
        if self.facts.effort_changed and other_tokens:
            return (
                Reason.REASONING_EFFORT_CHANGED,
                "The reasoning setting is another one than in the last turn, and it is part of the prompt.",
            )
        if lost is not None:
            return (
                Reason.EVICTED,
                f"The {lost.tier} checkpoint at token {lost.position:,} had been dropped ({lost.reason}). "
                f"{remedy(lost.reason)}".strip(),
            )
        if other_tokens and self.started.reason is not ResumeReason.NOTHING_STORED:
            if self.is_respelled:
                return Reason.TOOLS_CHANGED, self._told_respelled()
            if matched >= self._border(self.facts.head_messages):
                return (
                    Reason.INPUT_CHANGED,
                    f"The items are the stored ones, but from token {matched:,} on they make other tokens.",
                )
        if self.match.kind is MatchKind.FORKS:
            return (
                Reason.BRANCH,
                "Another turn of this conversation was running, and its state was not there yet.",
            )
        return (
            Reason.CHECKPOINT_MISSING,
            f"No checkpoint stood between token {self.reused:,} and token {self.limit:,}.",
        )

    def _told_respelled(self) -> str:
        return (
            "Tools and instructions mean the same but are written otherwise from token "
            f"{self.started.matched_tokens:,} on (their order, their spelling, or a line that accounts for the client)."
        )

    def _lost(self) -> Drop | None:
        """The longest lost checkpoint from which more could have been reused."""
        useful: Iterable[Drop] = (
            drop
            for drop in self.facts.drops
            if drop.reason != SUPERSEDED and self.reused < drop.position <= self.limit
        )
        return max(useful, key=lambda drop: drop.position, default=None)

    def _border(self, messages: int) -> int:
        borders = self.started.borders
        return borders[min(messages, len(borders) - 1)] if borders else 0
