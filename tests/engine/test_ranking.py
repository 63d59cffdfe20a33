"""Orders that are kept up to date are those that sorting everything anew gives, after whatever happens."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from engine.api import AnchorKind, CheckpointId, ContinuationId, Retention, Tier
from engine.cache.ranking import Ranking
from engine.planner.residency import PINNED, Label, Worth

NAMES = [ContinuationId(name) for name in "abcd"]
names = st.sampled_from(NAMES)
keys = st.integers(0, 7)


def checkpoint(key: int, continuation: ContinuationId) -> CheckpointId:
    return CheckpointId(f"{key}{continuation}")


class Changes(RuleBasedStateMachine):
    """The model: labels by checkpoint, tiers, retentions; everything is ranked anew each time."""

    def __init__(self) -> None:
        super().__init__()
        self.ranking = Ranking()
        self.labels: dict[int, dict[ContinuationId, Label]] = {}
        self.tiers: dict[int, Tier] = {}
        self.retentions: dict[ContinuationId, Retention] = {}
        self.now = 0.0
        self.ranking.at(self.now)  # as whoever reads an order does first
        self.serial = 0
        for name in NAMES:
            self.retain(name, 0, 0, None, [])

    @rule(
        name=names,
        priority=st.integers(0, 2),
        used_at=st.integers(0, 3),
        pin=st.none() | st.integers(0, 30),
        expendable=st.lists(keys, max_size=3, unique=True),
    )
    def retain(
        self,
        name: ContinuationId,
        priority: int,
        used_at: int,
        pin: int | None,
        expendable: list[int],
    ) -> None:
        given_up = tuple(checkpoint(key, name) for key in expendable)
        told = Retention(name, priority, used_at, None if pin is None else self.now + pin, given_up)
        self.retentions[name] = self.ranking[name] = told

    @rule(key=keys, name=names, tier=st.sampled_from(Tier))
    def label(self, key: int, name: ContinuationId, tier: Tier) -> None:
        self.serial += 1
        label = Label(checkpoint(key, name), name, AnchorKind.TIP, self.serial)
        tier = self.tiers.setdefault(key, tier)
        self.labels.setdefault(key, {})[name] = label
        self.ranking.label(key, tier, label)

    @rule(key=keys, name=names)
    def unlabel(self, key: int, name: ContinuationId) -> None:
        if name in self.labels.get(key, {}):
            del self.labels[key][name]
            self.ranking.unlabel(key, name)
            if not self.labels[key]:
                del self.labels[key], self.tiers[key]

    @rule(key=keys, tier=st.sampled_from(Tier))
    def move(self, key: int, tier: Tier) -> None:
        if key in self.tiers:
            self.tiers[key] = tier
        self.ranking.move(key, tier)

    @rule(seconds=st.integers(0, 12))
    def wait(self, seconds: int) -> None:
        self.now += seconds
        self.ranking.at(self.now)

    @rule(name=names)
    def forget(self, name: ContinuationId) -> None:
        if all(name not in labels for labels in self.labels.values()):
            del self.ranking[name]
            assert name not in self.ranking
            self.retain(name, 1, 1, None, [])

    @invariant()
    def orders_are_exact(self) -> None:
        worth = Worth(self.retentions, self.now)
        ranks = {key: worth.checkpoint(labels.values()) for key, labels in self.labels.items()}
        for tier in Tier:
            order = sorted((rank, key) for key, rank in ranks.items() if self.tiers[key] is tier)
            assert self.ranking.order(tier) == order
            pinned = [key for rank, key in order if rank[0] == PINNED]
            assert self.ranking.pinned(tier) == pinned
        assert all(self.ranking.rank(key) == rank for key, rank in ranks.items())
        assert dict(self.ranking) == self.retentions


TestChanges = Changes.TestCase
TestChanges.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=5), st.floats(0, 100))
def test_time_that_goes_back_brings_no_pin_back(moments: list[float], until: float) -> None:
    ranking = Ranking()
    ranking[NAMES[0]] = Retention(NAMES[0], 1, 1.0, until)
    ranking.label(1, Tier.DEVICE, Label(checkpoint(1, NAMES[0]), NAMES[0], AnchorKind.TIP, 1))
    for moment in moments:
        ranking.at(moment)
    assert ranking.pinned(Tier.DEVICE) == ([1] if until > max(moments) else [])
