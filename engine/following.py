"""Which waiting sequences follow which running ones: carries planner.sharing's answers between the queues. Knows no memory, no clock."""

from collections.abc import Iterable

from engine.api import AnchorKind
from engine.planner.sharing import Leader, Sharing, choose_lead, common_tokens
from engine.sequence import Sequence


class Following:
    """Mutable. A follower is told apart from the rest of the queue only here; whoever runs it calls `forget` first."""

    def __init__(self, sharing: Sharing) -> None:
        self._sharing = sharing
        self._leads: dict[Sequence, tuple[Sequence, int]] = {}

    def waits(self, sequence: Sequence) -> bool:
        """Whether its leader is still on the way to the stop. If not (it has been there, or has gone), it follows nobody any more."""
        lead = self._leads.get(sequence)
        if lead is None:
            return False
        leader, stop = lead
        if leader.lane is not None and leader.wants(stop):
            return True
        self.forget(sequence)
        return False

    def follow(self, sequence: Sequence, reusable: int, running: Iterable[Sequence]) -> bool:
        """Makes it wait for one of `running`, if it is worth while; that one then leaves a checkpoint where the two part."""
        lanes = {
            each.lane: each
            for each in running
            if each.lane is not None and each.tenant == sequence.tenant
        }
        leaders = (_leader(lane, each, sequence) for lane, each in lanes.items())
        lead = choose_lead(leaders, reusable, len(sequence.tokens), self._sharing)
        if lead is None:
            return False
        leader = lanes[lead.lane]
        leader.want(lead.stop, AnchorKind.BRANCH)
        self._leads[sequence] = (leader, lead.stop)
        sequence.estimate = len(sequence.tokens) - lead.stop
        return True

    def follows(self, sequence: Sequence) -> bool:
        return sequence in self._leads

    def forget(self, sequence: Sequence) -> None:
        self._leads.pop(sequence, None)

    def missing_pages(self, sequence: Sequence, page_tokens: int) -> int:
        """What a follower's own part will take once it begins."""
        _, stop = self._leads[sequence]
        return (len(sequence.tokens) + page_tokens) // page_tokens + 1 - stop // page_tokens

    def urgency(self) -> dict[Sequence, int]:
        """Leader → the fewest tokens that one of its followers would still have to compute in its place. A leader is served as if it had
        no more than that left, so that following it never means waiting behind those who overtake it.
        """
        fewest: dict[Sequence, int] = {}
        for follower, (leader, stop) in self._leads.items():
            if leader.wants(stop):
                left = len(follower.tokens) - leader.computed
                fewest[leader] = min(left, fewest.get(leader, left))
        return fewest


def _leader(lane: int, sequence: Sequence, follower: Sequence) -> Leader:
    computing = sequence.computed < sequence.prompt_tokens
    common = common_tokens(sequence.tokens, follower.tokens) if computing else 0
    return Leader(
        lane=lane,
        computed=sequence.computed,
        common=min(common, sequence.prompt_tokens),
        stops=[position for position, _ in sequence.wanted],
    )
