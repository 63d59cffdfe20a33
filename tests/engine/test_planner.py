"""The engine's pure decisions: memory, admission, steps, victims."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import (
    AnchorKind,
    CheckpointId,
    ContinuationId,
    RejectCode,
    ResumeReason,
    Retention,
    Tier,
)
from engine.config import EngineConfig
from engine.errors import ConfigRefused
from engine.planner.admission import (
    Admission,
    Candidate,
    Limits,
    Pools,
    Wait,
    admit,
    check_queue,
    check_size,
    choose_source,
    output_limit,
)
from engine.planner.memory import Budget as Bytes
from engine.planner.memory import Geometry, plan_memory
from engine.planner.residency import (
    EXPENDABLE,
    KEPT,
    Held,
    Label,
    Worth,
    choose_victims,
    leaving_memory,
    written_first,
)
from engine.planner.step import Budget, Chunk, Lineup, plan_step

LIMITS = Limits(context_tokens=1000, page_tokens=64, device_cells=100, max_waiting=2)
MIB = 1 << 20
# Qwen3.5-27B with bf16 keys and values (reference/model-and-weights.md): 65,536 bytes a token, 147 MiB an image.
LARGE = Geometry(64, 64 * 65_536, 144 * MIB + 2_949_120, 262_144)


class TestMemory:
    def test_the_27b_on_48_gb(self) -> None:
        plan = plan_memory(LARGE, Bytes(26 << 30, 24 << 30, lanes=3))
        assert plan.image_cells == 37
        assert plan.device_cells == 26 * 256
        assert plan.pages_per_context == 4096
        assert plan.lane_bytes == 3 * LARGE.image_bytes

    def test_the_table_tells_it_all(self) -> None:
        shape = dataclasses.replace(LARGE, workspace_bytes=100 * MIB)
        plan = plan_memory(shape, Bytes(26 << 30, 24 << 30, lanes=3, disk_bytes=200 << 30))
        assert plan.table().splitlines() == [
            "page                   64 tokens         4.0 MiB   65,536 bytes a token",
            "state image             37 pages       148.0 MiB",
            "one full context     4,096 pages    16,384.0 MiB   262,144 tokens",
            "lanes                          3       440.4 MiB   beside the tiers",
            "device               6,656 pages    26,624.0 MiB   images: 179, full contexts: 1",
            "host                 6,144 pages    24,576.0 MiB   images: 166, full contexts: 1",
            "disk                       files   204,800.0 MiB   images: 1,383, full contexts: 12",
            "workspace               at least       100.0 MiB   of a step, beside the tiers",
        ]

    def test_refusal_names_the_deficit(self) -> None:
        with pytest.raises(ConfigRefused, match=r"148\.0 MiB short \(in bytes: 155189248\)"):
            plan_memory(LARGE, Bytes(16 << 30, 0, lanes=1))

    def test_a_byte_too_few_is_named_too(self) -> None:
        needed = (4096 + 37) * LARGE.page_bytes
        assert plan_memory(LARGE, Bytes(needed, 0, lanes=1)).device_cells == 4133
        with pytest.raises(ConfigRefused, match=r"\(in bytes: 1\)"):
            plan_memory(LARGE, Bytes(needed - 1, 0, lanes=1))


class TestAdmission:
    @pytest.mark.parametrize(
        ("prompt", "most", "code"),
        [
            (999, None, None),
            (1000, None, RejectCode.CONTEXT_LENGTH_EXCEEDED),
            (5000, 1, RejectCode.CONTEXT_LENGTH_EXCEEDED),
            (0, None, RejectCode.INVALID_PROMPT),
            (10, 0, RejectCode.INVALID_PROMPT),
            (10, -3, RejectCode.INVALID_PROMPT),
            (10, 1, None),
        ],
    )
    def test_size(self, prompt: int, most: int | None, code: RejectCode | None) -> None:
        refusal = check_size(prompt, most, LIMITS)
        assert (refusal and refusal.code) == code

    def test_size_by_memory(self) -> None:
        refusal = check_size(700, None, dataclasses.replace(LIMITS, device_cells=10))
        assert refusal is not None
        assert (refusal.needed, refusal.available) == (701, 640)

    def test_queue(self) -> None:
        assert check_queue(1, LIMITS) is None
        refusal = check_queue(2, LIMITS)
        assert refusal is not None
        assert refusal.code is RejectCode.QUEUE_FULL

    @pytest.mark.parametrize(("most", "limit"), [(None, 100), (7, 7), (100, 100), (101, 100)])
    def test_output(self, most: int | None, limit: int) -> None:
        assert output_limit(900, most, 1000) == limit

    @pytest.mark.parametrize(
        ("tokens", "matched", "candidates", "position", "reason"),
        [
            (100, 0, [], None, ResumeReason.NOTHING_STORED),
            (100, 40, [], None, ResumeReason.NO_SHARED_CHECKPOINT),
            (100, 90, [(1, 30, Tier.DEVICE), (2, 80, Tier.HOST)], 80, ResumeReason.RESUMED),
            (100, 100, [(1, 30, Tier.DEVICE), (2, 100, Tier.DEVICE)], 30, ResumeReason.RESUMED),
            (100, 100, [(2, 100, Tier.DEVICE)], None, ResumeReason.NO_SHARED_CHECKPOINT),
            (101, 100, [(2, 100, Tier.DEVICE)], 100, ResumeReason.RESUMED),
        ],
    )
    def test_source(
        self,
        tokens: int,
        matched: int,
        candidates: list[tuple[int, int, Tier]],
        position: int | None,
        reason: ResumeReason,
    ) -> None:
        source, why = choose_source(tokens, matched, [Candidate(*each) for each in candidates])
        assert (source and source.position, why) == (position, reason)

    def test_nearest_tier_at_equal_length(self) -> None:
        every = [
            Candidate(1, 50, Tier.HOST),
            Candidate(2, 50, Tier.DEVICE),
            Candidate(3, 50, Tier.DISK),
        ]
        source, _ = choose_source(60, 50, every)
        assert source == every[1]
        source, _ = choose_source(60, 50, [every[2], every[0]])
        assert source == every[0]

    def test_the_longest_wherever_it_is(self) -> None:
        every = [Candidate(1, 40, Tier.DEVICE), Candidate(2, 50, Tier.DISK)]
        source, _ = choose_source(60, 50, every)
        assert source == every[1]

    @pytest.mark.parametrize(
        ("needed", "lanes", "answer"),
        [(60, 1, None), (61, 1, 1), (10, 0, 0)],
    )
    def test_pools(self, needed: int, lanes: int, answer: int | None) -> None:
        proposal = Admission(None, 0, ResumeReason.NOTHING_STORED)
        verdict = admit(needed, Pools(lanes, cells=100, committed=30, immovable=10), proposal)
        assert verdict == (proposal if answer is None else Wait(answer))


def lineup(lane: int, remaining: int, **changes: int | bool) -> Lineup:
    plain = Lineup(lane, lane, remaining, remaining, urgent=False, overtaken=0)
    return dataclasses.replace(plain, **changes)


class TestStep:
    def test_prompt_alone_takes_the_large_budget(self) -> None:
        plan = plan_step([lineup(0, 5000)], Budget(1024, 256))
        assert plan.prompts == (Chunk(0, 1024),)

    def test_decodes_come_along_and_shrink_it(self) -> None:
        lineups = [lineup(0, 5000), lineup(1, 1, urgent=True), lineup(2, 1, urgent=True)]
        plan = plan_step(lineups, Budget(1024, 256))
        assert plan.urgent == (Chunk(1, 1), Chunk(2, 1))
        assert plan.prompts == (Chunk(0, 256),)

    def test_chunk_ends_where_a_checkpoint_is_wanted(self) -> None:
        plan = plan_step([lineup(0, 5000, until_stop=300)], Budget(1024, 256))
        assert plan.prompts == (Chunk(0, 300),)

    def test_several_prompts_share_the_budget_shortest_first(self) -> None:
        plan = plan_step([lineup(0, 900), lineup(1, 100), lineup(2, 500)], Budget(1024, 256))
        assert plan.prompts == (Chunk(1, 100), Chunk(2, 500))
        assert plan.overtaken == ((0, 600),)

    def test_where_a_prompt_ends_others_get_little(self) -> None:
        """Its first token waits for the whole step; what ends too is computed whole."""
        plan = plan_step([lineup(0, 9000), lineup(1, 200)], Budget(1024, 256))
        assert plan.prompts == (Chunk(1, 200),)
        plan = plan_step([lineup(0, 9000), lineup(1, 50)], Budget(1024, 256))
        assert plan.prompts == (Chunk(1, 50), Chunk(0, 78))
        plan = plan_step([lineup(0, 9000), lineup(1, 200), lineup(2, 300)], Budget(1024, 256))
        assert plan.prompts == (Chunk(1, 200), Chunk(2, 300))

    def test_tokens_deep_in_their_context_count_for_more(self) -> None:
        """1,024 tokens at the start, a quarter of them where attending to the context costs three times the rest; never under `few`."""
        budget = Budget(1024, 256, context_weight=1 / 4096)
        chunks = [
            plan_step([lineup(0, 90_000, computed=done)], budget).prompts[0].tokens
            for done in (0, 4096, 12_288, 300_000)
        ]
        assert chunks == [920, 496, 254, 128]
        deep, stream = lineup(0, 90_000, computed=300_000), lineup(1, 1, urgent=True)
        assert plan_step([deep, stream], budget).prompts == (Chunk(0, 256),)
        assert plan_step([deep], Budget(100, 64, context_weight=1)).prompts == (Chunk(0, 100),)

    def test_no_crumbs(self) -> None:
        plan = plan_step([lineup(0, 900), lineup(1, 1020)], Budget(910, 256))
        assert plan.prompts == (Chunk(0, 900),)

    def test_what_was_overtaken_long_enough_comes_first(self) -> None:
        plan = plan_step([lineup(0, 900, overtaken=850), lineup(1, 100)], Budget(512, 256))
        assert plan.prompts == (Chunk(0, 512),)

    @given(
        st.lists(
            st.tuples(
                st.integers(1, 4000), st.integers(1, 4000), st.booleans(), st.integers(0, 5000)
            ),
            min_size=1,
            max_size=8,
        )
    )
    def test_always_progress_never_too_much(self, shapes: list[tuple[int, int, bool, int]]) -> None:
        lineups = [
            Lineup(
                lane, lane, 1 if urgent else left, 1 if urgent else min(stop, left), urgent, passed
            )
            for lane, (left, stop, urgent, passed) in enumerate(shapes)
        ]
        plan = plan_step(lineups, Budget(1024, 256))
        stops = {each.lane: each.until_stop for each in lineups}
        chunks = plan.urgent + plan.prompts
        assert chunks
        assert {chunk.lane for chunk in plan.urgent} == {e.lane for e in lineups if e.urgent}
        assert all(0 < chunk.tokens <= stops[chunk.lane] for chunk in chunks)
        assert sum(chunk.tokens for chunk in plan.prompts) <= (256 if plan.urgent else 1024)


def label(name: str, continuation: str, serial: int) -> Label:
    return Label(CheckpointId(name), ContinuationId(continuation), AnchorKind.TIP, serial)


class TestResidency:
    def test_order(self) -> None:
        tell = {
            "idle": Retention(ContinuationId("idle"), 1, 50.0),
            "old": Retention(ContinuationId("old"), 2, 10.0),
            "busy": Retention(
                ContinuationId("busy"), 9, 90.0, None, (CheckpointId("b2"), CheckpointId("b1"))
            ),
            "pin": Retention(ContinuationId("pin"), 0, 1.0, 200.0),
            "unpinned": Retention(ContinuationId("unpinned"), 0, 1.0, 100.0),
        }
        labels = [
            label("p1", "pin", 1),
            label("b3", "busy", 9),
            label("b1", "busy", 2),
            label("b2", "busy", 3),
            label("o2", "old", 8),
            label("o1", "old", 4),
            label("i1", "idle", 7),
            label("u1", "unpinned", 10),
        ]
        worth = Worth({ContinuationId(key): value for key, value in tell.items()}, now=100.0)
        order = [each.checkpoint for each in sorted(labels, key=worth.label)]
        assert order == ["b2", "b1", "u1", "i1", "o1", "o2", "b3", "p1"]

    def test_a_shared_checkpoint_is_worth_its_best_label(self) -> None:
        low = Retention(ContinuationId("low"), 0, 1.0)
        high = Retention(ContinuationId("high"), 9, 1.0)
        worth = Worth({low.continuation: low, high.continuation: high}, now=0.0)
        both = [label("x", "high", 1), label("y", "low", 2)]
        assert worth.checkpoint(both) == worth.label(both[0])

    def test_victims_are_counted_by_what_really_comes_free(self) -> None:
        holders = {"head": 3, "a": 1, "b": 1, "tail": 2}
        order = [Held(2, ["head", "a"]), Held(2, ["head", "b", "tail"]), Held(1, ["tail"])]
        count = holders.__getitem__
        assert choose_victims(order, count, 0) == 0
        assert choose_victims(order, count, 3) == 1
        assert choose_victims(order, count, 4) == 2
        assert choose_victims(order, count, 7) == 3
        assert choose_victims(order, count, 8) == 3
        assert choose_victims(order, count, 9) is None

    def test_victims_on_disk_are_counted_in_bytes(self) -> None:
        holders = {"head": 2, "a": 1, "b": 1}
        order = [Held(30, ["head", "a"]), Held(50, ["head", "b"])]
        count = holders.__getitem__
        assert choose_victims(order, count, 130, page_size=100) == 1
        assert choose_victims(order, count, 131, page_size=100) == 2
        assert choose_victims(order, count, 380, page_size=100) == 2
        assert choose_victims(order, count, 381, page_size=100) is None

    def test_out_of_memory_goes_first_what_nothing_is_lost_with(self) -> None:
        ranks = [(KEPT, 1.0, 1.0, 1), (KEPT, 2.0, 1.0, 2), (EXPENDABLE, 9.0, 9.0, 0)]
        leaving = [(rank, on_disk) for rank in ranks for on_disk in (False, True)]
        ordered = sorted(leaving, key=lambda pair: leaving_memory(*pair))
        assert ordered == [
            (ranks[2], False),
            (ranks[2], True),
            (ranks[0], True),
            (ranks[1], True),
            (ranks[0], False),
            (ranks[1], False),
        ]

    def test_tips_of_the_idle_are_written_first(self) -> None:
        low, high = (KEPT, 1.0, 5.0, 7), (KEPT, 2.0, 1.0, 3)
        every = [
            (r, tip, idle) for r in (low, high) for tip in (True, False) for idle in (True, False)
        ]
        ordered = sorted(every, key=lambda each: written_first(*each))
        assert ordered == [
            (high, True, True),
            (low, True, True),
            (high, False, True),
            (low, False, True),
            (high, True, False),
            (low, True, False),
            (high, False, False),
            (low, False, False),
        ]


class TestConfig:
    def test_round_trip(self) -> None:
        config = EngineConfig("somewhere", context_tokens=4096, disk_dir="d", check_integrity=True)
        assert EngineConfig.from_json(config.to_json()) == config

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "[]",
            "{}",
            '{"model_dir": 3}',
            '{"model_dir": "x", "lanes": 3}',
            '{"model_dir": "x", "max_lanes": "3"}',
            '{"model_dir": "x", "max_lanes": true}',
            '{"model_dir": "x", "max_lanes": 0}',
            '{"model_dir": "x", "kv_dtype": "int3"}',
            '{"model_dir": "x", "host_bytes": -1}',
            '{"model_dir": "x", "disk_bytes": -1}',
            '{"model_dir": "x", "disk_dir": 3}',
        ],
    )
    def test_refused(self, text: str) -> None:
        with pytest.raises(ConfigRefused):
            EngineConfig.from_json(text)
