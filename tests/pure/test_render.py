"""What the admin tables look like. The pictures are files in tests/snapshots; UPDATE_SNAPSHOTS=1 draws them anew."""

import io
import os
from pathlib import Path

import pytest
from rich.console import Console

from ninfer_proxy.admin import render

NOW = 1_000_000.0
SNAPSHOTS = Path(__file__).parents[1] / "snapshots"


def drawn(renderable, width=200):
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(renderable)
    lines = console.file.getvalue().splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"


def assert_snapshot(name, text):
    path = SNAPSHOTS / name
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def cp(kind, position, tier="device", size=1 << 20):
    return {
        "checkpoint": f"{kind}{position}",
        "kind": kind,
        "position": position,
        "tier": tier,
        "bytes": size,
    }


def slot(number, **fields):
    return {
        "slot": number,
        "conversation": f"conv_{number:024x}",
        "client": "OpenAI/JS 7.15.0",
        "class": "recent",
        "pinned_until": None,
        "tokens": 0,
        "bytes": 0,
        "checkpoints": [],
        "last_used_at": NOW - 5,
        "in_flight": 0,
        "hits": 0,
        "tokens_prefilled": 0,
        "tokens_reused": 0,
        "last_reason": None,
        "role": "main",
        "scope": "",
        "family": "",
        "side_kind": None,
        "parent": None,
        "continuation": f"cont_{number}",
        **fields,
    }


MAIN = slot(
    0,
    **{"class": "waiting_for_tool"},
    pinned_until=NOW + 5400,
    tokens=131_072,
    bytes=3 << 30,
    checkpoints=[
        cp("tip", 131_072),
        cp("head", 15_000, "host", 5 << 20),
        cp("prompt_end", 130_000),
    ],
    hits=41,
    tokens_prefilled=160_123,
    tokens_reused=4_812_345,
    last_reason="transient_item",
    scope="conv-1",
    family="openclaw",
)
IDLE = slot(
    1,
    **{"class": "idle"},
    tokens=9_001,
    bytes=1536,
    checkpoints=[cp("tip", 9_001, "host")],
    last_used_at=NOW - 90_000,
    hits=3,
    tokens_prefilled=20_000,
    tokens_reused=27_003,
    last_reason="evicted",
)
SIDE = slot(12, **{"class": "side"}, client="", last_used_at=NOW - 70, last_reason="side_request")
SLOTS = {"slots": [MAIN, IDLE, SIDE]}
STATUS = {
    "engine": {
        "state": "ready",
        "detail": "",
        "model": "demo",
        "device": "cpu",
        "weights": "w",
        "context_tokens": 32_768,
        "max_lanes": 4,
        "restarts": 1,
        "generation": 2,
    },
    "waiting": 2,
    "restoring": 1,
    "lanes": [
        {
            "lane": 0,
            "conversation": MAIN["conversation"],
            "request": "resp_1",
            "prompt_tokens": 131_000,
            "computed_tokens": 65_536,
            "output_tokens": 0,
        },
        {
            "lane": 3,
            "conversation": None,
            "request": "resp_2",
            "prompt_tokens": 40,
            "computed_tokens": 40,
            "output_tokens": 17,
        },
    ],
    "tiers": [
        {"tier": "device", "used_bytes": 700 << 20, "total_bytes": 1 << 30, "note": ""},
        {"tier": "host", "used_bytes": 0, "total_bytes": 0, "note": ""},
        {"tier": "disk", "used_bytes": 2 << 30, "total_bytes": 8 << 30, "note": "not written to"},
    ],
    "counters": {},
}
BRIEF = {
    "response": "resp_5f0c",
    "created_at": NOW - 65,
    "status": "completed",
    "reason": "cache_hit",
    "prompt_tokens": 15_400,
    "reused_tokens": 15_300,
    "prefilled_tokens": 100,
    "output_tokens": 57,
}
EXPLAINED = {
    **BRIEF,
    "reason": "tools_changed",
    "completed_at": NOW - 60,
    "conversation": MAIN["conversation"],
    "previous_response": None,
    "slot": 0,
    "detail": "The tool list differs from the one before: exec was added.",
    "match": "continues",
    "evidence": ["session_id header", "longest chain"],
    "difference": "the tools differ: exec was added (11 before, 12 now)",
    "differs_at": "tools[3]",
    "stabilised": ["clock: “10:11” in the instructions became “--:--”", "tool_keys: sorted"],
    "saved_tokens": 15_300,
    "source_tier": "host",
    "source_kind": "head",
    "input_tokens": 15_400,
    "cached_tokens": 15_300,
    "reasoning_tokens": 20,
    "model": "demo",
    "effort": "low",
    "prompt_items": 12,
    "output_items": 2,
    "engine_generation": 1,
    "retrievable": True,
    "deleted": False,
    "plan": {"expected_tokens": 15_390},
}
SHOWN = {
    **MAIN,
    "tenant": "t",
    "tip_response": "resp_5f0c",
    "created_at": NOW - 90_000,
    "items": 120,
    "line_items": 101,
    "responses": [
        BRIEF,
        {**BRIEF, "response": "resp_5f0b", "reason": "evicted", "created_at": NOW - 4000},
    ],
    "drops": [
        {
            "at": NOW - 3600,
            "reason": "memory",
            "tokens": 98_304,
            "bytes": 2 << 30,
            "checkpoints": [cp("ladder", 98_304), cp("ladder", 81_920), cp("tip", 98_000)],
        }
    ],
}


def test_slots():
    assert_snapshot("slots.txt", drawn(render.slots_table(SLOTS, NOW)))


def test_no_slots():
    assert "No slot is in use" in drawn(render.slots_table({"slots": []}, NOW))


def test_show():
    assert_snapshot("show.txt", drawn(render.show_view(SHOWN, NOW)))


def test_show_of_a_conversation_without_a_slot():
    bare = {**SHOWN, "slot": None, "class": None, "checkpoints": [], "responses": [], "drops": []}
    text = drawn(render.show_view(bare, NOW))
    assert "slot          none" in text
    assert "Checkpoints" not in text


def test_explain():
    assert_snapshot("explain.txt", drawn(render.explain_view(EXPLAINED, NOW)))


def test_explain_of_a_plain_hit_says_only_what_there_is():
    nothing = {"difference": None, "differs_at": None, "stabilised": [], "saved_tokens": None}
    plain = {**EXPLAINED, **nothing, "source_tier": None, "effort": None, "plan": {}}
    text = drawn(render.explain_view(plain, NOW))
    assert "first difference" not in text
    assert "stabilised" not in text
    assert "saved" not in text
    assert "expected" not in text
    assert "resumed from   nothing" in text


def test_top():
    assert_snapshot("top.txt", drawn(render.top_frame(STATUS, SLOTS, NOW)))


def test_top_while_the_engine_is_away():
    away = {
        "engine": {**STATUS["engine"], "state": "restarting", "detail": "exit 137", "model": None},
        **dict.fromkeys(("waiting", "restoring", "lanes", "tiers", "counters")),
    }
    text = drawn(render.top_frame(away, {"slots": []}, NOW))
    assert text.startswith("engine restarting (exit 137)   restarts 1\n")


@pytest.mark.parametrize("width", [80, 120, 220])
def test_nothing_is_cut(width):
    text = drawn(render.slots_table(SLOTS, NOW), width)
    assert "…" not in text
    if width == 220:
        assert all(each["conversation"] in text for each in SLOTS["slots"])


def test_markup_in_names_is_shown_as_it_is():
    sly = {"slots": [slot(0, client="[red]x[/red]", conversation="[bold]")]}
    assert "[red]x[/red]" in drawn(render.slots_table(sly, NOW))


@pytest.mark.parametrize(
    ("seconds", "said"), [(-3, "0s"), (59.9, "59s"), (60, "1m"), (7199, "1h"), (200_000, "2d")]
)
def test_durations(seconds, said):
    assert render.duration(seconds) == said


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (5 << 20, "5.0 MiB"),
        (3 << 40, "3072.0 GiB"),
    ],
)
def test_sizes(count, said):
    assert render.size(count) == said
