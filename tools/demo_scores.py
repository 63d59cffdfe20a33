"""Scores of the bundled demo model through the real engine, on phrasings and values it was never trained on.

    python -m tools.demo_scores [--scale X] [--long N]

Every answer is the model's own, greedy; histories are what it really said. Exit status 1 when a threshold is missed.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from engine.api import Message, Prompt, ToolSpec
from tools.demo_data import call_probe, recall_probe
from tools.demo_engine import Chats, Reply, grown
from tools.demo_scene import Mode, Scene
from tools.demo_skills import NO_TOOL, arithmetic, capital, chat, repeat, report, run

DEMO = Path(__file__).resolve().parents[1] / "engine" / "demo"
SEED = 4242


@dataclass(frozen=True, slots=True)
class Score:
    """`threshold` None: measured for information only."""

    name: str
    hits: int
    count: int
    threshold: float | None

    def line(self) -> str:
        share = self.hits / max(self.count, 1)
        need = "" if self.threshold is None else f">= {self.threshold:.0%}"
        verdict = "" if self.threshold is None else "met" if self.met() else "MISSED"
        return f"{self.name:<46} {self.hits:>4} / {self.count:<4} {share:>6.1%}  {need:<7} {verdict}".rstrip()

    def met(self) -> bool:
        return self.threshold is None or self.hits >= self.threshold * self.count


def prompt_of(scene: Scene, messages: int) -> Prompt:
    """The first `messages` messages of a scene as a prompt."""
    tools = tuple(
        ToolSpec(t["function"]["name"], t["function"]["description"], t["function"]["parameters"])
        for t in scene.tools
    )
    said = tuple(Message(m["role"], m["content"]) for m in scene.messages[:messages])
    return Prompt(said, tools, scene.mode.thinking, scene.mode.effort)


def rolled(chats: Chats, scenes: Sequence[Scene], name: str) -> tuple[list[Prompt], list[Reply]]:
    """Plays the user's side of each scene; the model gives every answer. Last prompts and last replies."""
    prompts = [prompt_of(s, 0) for s in scenes]
    replies: list[Reply | None] = [None] * len(scenes)
    at = [0] * len(scenes)
    while True:
        due = []
        for i, s in enumerate(scenes):
            while at[i] < len(s.messages) and s.messages[at[i]]["role"] != "assistant":
                m = s.messages[at[i]]
                prompts[i] = grown(prompts[i], Message(m["role"], m["content"]))
                at[i] += 1
            if at[i] < len(s.messages):
                due.append(i)
        if not due:
            return prompts, [r for r in replies if r is not None]
        answers = chats.answer([prompts[i] for i in due], [f"{name}{i}" for i in due])
        for i, reply in zip(due, answers, strict=True):
            at[i] += 1
            replies[i] = reply
            if at[i] < len(scenes[i].messages):
                prompts[i] = grown(prompts[i], reply.message())


def contains(text: str, value: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text) is not None


def recall_scores(chats: Chats, count: int, distance: int, endings: list[bool]) -> Score:
    """A fact, at least `distance` tokens of other turns, the question."""
    rng = Random(SEED + distance)
    probes = [recall_probe(rng, int(distance * 1.35), i % 2 == 0) for i in range(count)]
    prompts, replies = rolled(chats, [p[0] for p in probes], f"recall{distance}-")
    far = [chats.count(p) >= distance for p in prompts]
    hits = [contains(r.text, fact.value) for r, (_, fact) in zip(replies, probes, strict=True)]
    endings += [r.ended for r in replies]
    kept = [h for h, f in zip(hits, far, strict=True) if f]
    return Score(
        f"recall of a fact over {distance} tokens",
        sum(kept),
        len(kept),
        0.9 if distance >= 2000 else None,
    )


def call_scores(
    chats: Chats, count: int, head: int, new_name: bool, endings: list[bool]
) -> list[Score]:
    """One command to run: exactly one call with the offered name and the exact line, then a report."""
    rng = Random(SEED + head + new_name)
    scenes = [call_probe(rng, head, i % 2 == 0, new_name) for i in range(count)]
    label = f"call{head}{new_name}-"
    firsts = [s.messages[: len(s.messages) - 3] for s in scenes]
    prompts = [prompt_of(s, len(f)) for s, f in zip(scenes, firsts, strict=True)]
    replies = chats.answer(prompts, [f"{label}{i}" for i in range(count)])
    good = [right_call(s, r) for s, r in zip(scenes, replies, strict=True)]
    endings += [r.ended for r in replies]
    going = [i for i in range(count) if good[i]]
    after = [
        grown(
            prompts[i],
            replies[i].message(),
            Message("tool", scenes[i].messages[-2]["content"], tool_call_id="call_0"),
        )
        for i in going
    ]
    reports = chats.answer(after, [f"{label}{i}" for i in going])
    endings += [r.ended for r in reports]
    told = [
        r.text.strip() == report(scenes[i].output or "").strip()
        for i, r in zip(going, reports, strict=True)
    ]
    where = f" behind a head of {head} tokens" if head > 1000 else ""
    kind = "a tool name never seen" if new_name else "usual tool names"
    need = 0.9 if head <= 1000 else None
    return [
        Score(f"valid tool call, {kind}{where}", sum(good), count, need),
        Score("  its output reported exactly", sum(told), len(told), None),
    ]


def right_call(scene: Scene, reply: Reply) -> bool:
    want = scene.messages[-3]["tool_calls"][0]["function"]
    if len(reply.calls) != 1:
        return False
    name, arguments = reply.calls[0]
    return bool(name == want["name"] and json.loads(arguments) == want["arguments"])


def refusal_scores(chats: Chats, count: int, endings: list[bool]) -> Score:
    rng = Random(SEED + 5)
    scenes = []
    for i in range(count):
        s = Scene(rng, Mode(thinking=i % 2 == 0), held=True)
        run(s)
        scenes.append(s)
    _, replies = rolled(chats, scenes, "refusal")
    endings += [r.ended for r in replies]
    return Score(
        "says so where no tool runs commands", sum(r.text == NO_TOOL for r in replies), count, None
    )


def answer_scores(chats: Chats, count: int, endings: list[bool]) -> list[Score]:
    """Single questions in held-out phrasings; the answer must be the taught one."""
    out = []
    for skill in (chat, arithmetic, capital, repeat):
        rng = Random(SEED + 6)
        scenes = []
        for i in range(count):
            s = Scene(rng, Mode(thinking=i % 2 == 0), held=True)
            skill(s)
            scenes.append(s)
        _, replies = rolled(chats, scenes, skill.__name__)
        hits = [
            r.text.strip() == s.messages[-1]["content"].strip()
            for r, s in zip(replies, scenes, strict=True)
        ]
        endings += [r.ended for r in replies]
        out.append(Score(f"taught answer: {skill.__name__}", sum(hits), count, None))
    return out


def measure(chats: Chats, scale: float, long: int) -> list[Score]:
    endings: list[bool] = []
    n = max(4, int(60 * scale))
    scores = [recall_scores(chats, n, 2000, endings), recall_scores(chats, n, 300, endings)]
    scores += call_scores(chats, n, 0, False, endings) + call_scores(chats, n, 0, True, endings)
    scores.append(refusal_scores(chats, max(4, n // 2), endings))
    scores += answer_scores(chats, max(4, n // 2), endings)
    if long:
        scores += call_scores(chats, long, 17000, False, endings)
    scores.append(Score("turns ended by the model", sum(endings), len(endings), 0.99))
    return scores


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=DEMO)
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the number of probes")
    parser.add_argument(
        "--long", type=int, default=8, help="probes behind an agent's head of 17000 tokens"
    )
    args = parser.parse_args()
    chats = Chats(args.model)
    try:
        scores = measure(chats, args.scale, args.long)
    finally:
        chats.close()
    print("demo model, held-out phrasings and values, greedy, thinking on and off by halves")
    for score in scores:
        print(score.line())
    missed = sum(not s.met() for s in scores)
    judged = sum(s.threshold is not None for s in scores)
    print(f"{judged - missed} met, {missed} missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
