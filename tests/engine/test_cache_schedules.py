"""Random schedules over a small cache: after every step each cell is accounted for, and every token said is the oracle's."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.api import CheckpointId, Failed, Finished, FinishReason, RequestId, Retention, Started
from engine.planner.sharing import Sharing
from tests.engine.fake_model import END, FakeModel, oracle
from tests.engine.rig import Rig

STOP_EVERY = 40
TENANTS = ("t", "u")

submits = st.tuples(
    st.just("submit"),
    st.integers(0, 30),  # which known line to go on from, if any
    st.integers(0, 100),  # per cent of it that is kept
    st.integers(1, 60),  # new tokens
    st.integers(0, 3),  # seed of the new tokens: few, so that requests coincide
    st.lists(st.integers(1, 130), max_size=3),  # anchors
    st.integers(1, 30),  # max_tokens
    st.integers(0, 3),  # priority
)
others = st.tuples(
    st.sampled_from(["step", "step", "step", "cancel", "drop", "drop_some", "pin", "expend"]),
    st.integers(0, 30),
)


class Session:
    """A rig, what was asked of it, and the lines it is known to hold."""

    def __init__(self, device_cells: int, host_cells: int, lanes: int) -> None:
        self.rig = Rig(
            device_cells,
            host_cells,
            lanes,
            context=160,
            max_waiting=4,
            model=FakeModel(STOP_EVERY),
            sharing=Sharing(least=8, slack=4),
        )
        self.asked: dict[RequestId, tuple[list[int], int]] = {}
        self.tenants: dict[RequestId, str] = {}
        self.lines: list[list[int]] = [[]]

    def do(self, action: tuple) -> None:  # type: ignore[type-arg]
        name, *rest = action
        getattr(self, name)(*rest)

    def submit(
        self,
        which: int,
        share: int,
        new: int,
        seed: int,
        anchors: list[int],
        most: int,
        priority: int,
    ) -> None:
        base = self.lines[which % len(self.lines)]
        kept = base[: len(base) * share // 100]
        tokens = [*kept, *(10 + (seed * 37 + at * 11) % 180 for at in range(new))]
        tenant = TENANTS[seed == 3]
        request = self.rig.submit(
            tokens,
            f"c{which % 5}",
            tenant,
            [at for at in anchors if at <= len(tokens)],
            most,
            priority,
        )
        self.asked[request] = (tokens, most)
        self.tenants[request] = tenant

    def step(self, _: int) -> None:
        self.rig.step()
        for request in self.asked:
            last = self.rig.events[request][-1:]
            if last and isinstance(last[0], Finished) and last[0].ledger is not None:
                line = self.rig.line(self.asked[request][0], request)
                if line not in self.lines:
                    self.lines.append(line)

    def cancel(self, which: int) -> None:
        if self.asked:
            self.rig.cancel(list(self.asked)[which % len(self.asked)])

    def drop(self, which: int) -> None:
        self.rig.drop(f"c{which % 5}")

    def drop_some(self, which: int) -> None:
        names = self.names(which)
        self.rig.drop(f"c{which % 5}", (*names[::2], CheckpointId("unknown")))

    def pin(self, which: int) -> None:
        until = self.rig.now + 20
        self.rig.retain(Retention(f"c{which % 5}", which % 4, self.rig.now, until))  # type: ignore[arg-type]

    def expend(self, which: int) -> None:
        names = self.names(which)
        self.rig.retain(Retention(f"c{which % 5}", 2, self.rig.now, None, names))  # type: ignore[arg-type]

    def names(self, which: int) -> tuple[CheckpointId, ...]:
        return tuple(each.checkpoint for each in self.rig.checkpoints(f"c{which % 5}").values())

    def verify(self) -> None:
        self.rig.now += 100
        self.rig.run()
        for request, (tokens, most) in self.asked.items():
            said = self.rig.output(request)
            expected = oracle(tokens, most, STOP_EVERY)
            assert said == [token for token in expected if token != END][: len(said)]
            end = self.rig.end(request)
            assert not isinstance(end, Failed) or "pinned" in end.message
            if isinstance(end, Finished) and end.reason is FinishReason.STOP:
                assert expected[-1] == END
                assert end.output_tokens == len(expected)
            self.verify_reuse(request, tokens)
        assert self.rig.cache.pages.in_lanes == 0
        for number in range(5):
            self.rig.drop(f"c{number}")
        assert self.rig.cache.pages.device.used == self.rig.cache.pages.host.used == 0

    def verify_reuse(self, request: RequestId, tokens: list[int]) -> None:
        """What was found is on another line of the same tenant, and less than the prompt was reused."""
        tenant = self.tenants[request]
        others = [r for r in self.asked if r != request and self.tenants[r] == tenant]
        lines = [[*self.asked[r][0], *self.rig.output(r), END] for r in others]
        for event in self.rig.events[request]:
            if isinstance(event, Started):
                assert event.reused_tokens < len(tokens)
                assert event.reused_tokens <= event.matched_tokens
                longest = max((shared(tokens, line) for line in lines), default=0)
                assert event.matched_tokens <= longest


def shared(left: list[int], right: list[int]) -> int:
    pairs = zip(left, right, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))


@pytest.mark.parametrize(
    ("device_cells", "host_cells", "lanes"),
    [(26, 0, 2), (30, 40, 3), (60, 25, 4), (200, 200, 4)],
    ids=["bare", "tight", "mixed", "ample"],
)
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(actions=st.lists(st.one_of(submits, others, others), min_size=15, max_size=60))
def test_any_schedule_is_exact_and_accounted_for(
    device_cells: int,
    host_cells: int,
    lanes: int,
    actions: list[tuple],  # type: ignore[type-arg]
) -> None:
    session = Session(device_cells, host_cells, lanes)
    for action in actions:
        session.do(action)
    session.verify()
