"""Whole conversations of the demo model's data, rendered through its chat template and turned into tokens and loss masks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from tools.demo_agent import make_shell, offer, sentence, system_prompt
from tools.demo_facts import HELD_KEYS, Fact, make_fact
from tools.demo_scene import Mode, Scene
from tools.demo_skills import (
    acknowledge,
    arithmetic,
    ask,
    beyond,
    capital,
    chat,
    passage,
    plain_request,
    recall,
    repeat,
    run,
    step,
    tell,
    title_words,
)
from tools.demo_text import paragraphs
from tools.demo_wide import widen
from tools.demo_words import HELD_PLAIN

CHARS_PER_TOKEN = 3.3
HELD_WORDS = frozenset((*HELD_PLAIN, *(word for key in HELD_KEYS for word in key.split())))


class Template:
    """The chat template of the demo model."""

    def __init__(self, source: str) -> None:
        env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        env.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)

        def refuse(text: str) -> None:
            raise jinja2.TemplateError(text)

        env.globals["raise_exception"] = refuse
        self.template = env.from_string(source)

    def render(self, scene: Scene, opener: bool = False) -> str:
        return self.template.render(
            messages=scene.messages,
            tools=scene.tools or None,
            add_generation_prompt=opener,
            enable_thinking=scene.mode.thinking,
            reasoning_effort=scene.mode.effort,
            preserve_thinking=scene.mode.preserve,
        )


def make_mode(rng: Random, agent: bool) -> Mode:
    return Mode(
        thinking=rng.random() < 0.5,
        effort=rng.choice(("xhigh", "xhigh", "medium", "low")),
        preserve=rng.random() < 0.85,
        stamped=rng.random() < (0.8 if agent else 0.2),
        carried=rng.random() < (0.6 if agent else 0.12),
        keep_carriers=rng.random() < 0.4,
        dropped=rng.random() < 0.15,
    )


SHORT_CHARS = 1500
LEAST_WITH_TOOLS = 1200


def start(rng: Random, head: int, varied: bool, agent: bool | None = None) -> Scene:
    """A scene with tools and a system prompt of about `head` characters together (0: often neither)."""
    if agent is None:
        agent = head > 1500 or rng.random() < 0.15
    s = Scene(rng, make_mode(rng, agent), varied=varied)
    if rng.random() < (0.75 if agent else 0.25):
        s.shell = make_shell(rng)
    rich = head > 3000
    most = 16 if rich else 4 if head > 600 else 2
    if s.shell or rng.random() < 0.12:
        s.tools = offer(rng, s.shell, rng.randint(0 if s.shell else 1, most), rich)
    if head or rng.random() < 0.25:
        left = head - sum(len(str(t)) for t in s.tools)
        text = system_prompt(rng, max(left, 0), paragraphs())
        s.messages.append({"role": rng.choice(("system", "system", "developer")), "content": text})
    return s


def wanted(s: Scene, chars: int) -> int:
    """A list of tools is long: most conversations that carry one should have several turns to learn from."""
    return max(chars, LEAST_WITH_TOOLS) if s.tools and s.rng.random() < 0.8 else chars


def mixed(rng: Random, chars: int, head: int, varied: bool) -> Scene:
    """Any skills in any order until the size is reached."""
    s = start(rng, head, varied)
    s.short = chars < SHORT_CHARS
    end = s.chars() + wanted(s, chars)
    while s.chars() < end or s.messages[-1]["role"] != "assistant":
        step(s, rng)
    return s


SKILLS = (run, run, run, arithmetic, repeat, chat, capital, beyond)
VARIED_SKILLS = (*SKILLS, arithmetic, arithmetic, chat)


def single(rng: Random, chars: int, head: int, varied: bool) -> Scene:
    """Little besides one skill, so that what was asked before is no hint."""
    s = start(rng, head, varied, agent=rng.random() < 0.5)
    s.short = chars < SHORT_CHARS
    skill = rng.choice(VARIED_SKILLS if varied else SKILLS)
    end = s.chars() + wanted(s, chars)
    while s.chars() < end or s.messages[-1]["role"] != "assistant":
        if rng.random() < 0.8:
            skill(s)
        else:
            step(s, rng)
    return s


def dense(rng: Random, chars: int, head: int, varied: bool) -> Scene:
    """Many facts, a stretch of something else, then a question for each."""
    s = start(rng, head, varied)
    s.short = chars < SHORT_CHARS
    begin = s.chars()
    for _ in range(rng.randint(1, 4)):
        tell(s)
    gap = chars * rng.choice((0.0, 0.4, 0.7))
    while s.chars() - begin < gap:
        rng.choice((passage, run, lambda scene: step(scene, rng), lambda scene: step(scene, rng)))(
            s
        )
    while s.chars() - begin < chars or not s.facts:
        rng.choice((ask, ask, ask, ask, run, run, tell))(s)
    return s


def title(rng: Random) -> Scene:
    s = Scene(rng, make_mode(rng, False))
    s.mode.stamped = s.mode.carried = False
    rule = rng.choice(("from the user's first message", "for this conversation", "for the message"))
    text = f"Generate a concise session title ({rng.choice(('3-6', '2-5', '3-7'))} words) {rule}. {sentence(rng)} Return only the title."
    s.messages.append({"role": "system", "content": text})
    request = plain_request(rng)
    s.turn(request, title_words(request), "A title is wanted.")
    return s


SECTIONS = (
    "Decisions",
    "Open TODOs",
    "Constraints/Rules",
    "Pending user asks",
    "Exact identifiers",
)
OTHER_SECTIONS = (
    "Goal",
    "Progress",
    "Key Decisions",
    "Next Steps",
    "Critical Context",
    "Facts",
    "Done",
    "Blocked",
)


def compaction(rng: Random, chars: int) -> Scene:
    """Asks for a structured summary of a transcript: facts under the last heading, none elsewhere."""
    inner = Scene(rng, Mode(thinking=False, stamped=rng.random() < 0.3))
    inner.shell = make_shell(rng)
    while inner.chars() < chars:
        rng.choice((tell, ask, run, lambda scene: step(scene, rng)))(inner)
    lines = []
    for m in inner.messages:
        if m.get("tool_calls"):
            f = m["tool_calls"][0]["function"]
            lines.append(
                f"[Assistant tool calls]: {f['name']}({next(iter(f['arguments']))}={json.dumps(next(iter(f['arguments'].values())))})"
            )
        else:
            who = {"user": "User", "assistant": "Assistant", "tool": "Tool result"}[m["role"]]
            lines.append(f"[{who}]: {m['content']}")
    heads = (
        list(SECTIONS)
        if rng.random() < 0.6
        else rng.sample(SECTIONS + OTHER_SECTIONS, rng.randint(3, 6))
    )
    s = Scene(rng, make_mode(rng, False))
    s.mode.stamped = s.mode.carried = False
    s.messages.append(
        {
            "role": "system",
            "content": f"You are a context summarization assistant. {sentence(rng)} ONLY output the structured summary.",
        }
    )
    ask_for = "\n".join(f"## {h}" for h in heads)
    tail = " ".join(sentence(rng) for _ in range(rng.randint(0, 5)))
    known = [f.answer for f in inner.facts[-6:]] or ["none"]
    body = "\n\n".join(
        f"## {h}\n" + ("\n".join(f"- {k}" for k in known) if h == heads[-1] else "- none")
        for h in heads
    )
    text = "\n\n".join(lines)
    s.turn(
        f"<conversation>\n{text}\n</conversation>\n\nProduce a compact, factual summary with these exact section headings:\n{ask_for}\n{tail}",
        body,
        "A summary is wanted.",
    )
    return s


def summarised(rng: Random, chars: int, head: int, varied: bool) -> Scene:
    """A conversation that goes on after its history was replaced by a summary."""
    s = start(rng, head, varied)
    facts = [make_fact(rng) for _ in range(rng.randint(1, 5))]
    s.facts += list({f.key: f for f in facts}.values())
    heads = rng.sample(SECTIONS + OTHER_SECTIONS, 4)
    body = "\n\n".join(
        f"## {h}\n" + ("\n".join(f"- {f.answer}" for f in s.facts) if i == 3 else "- none")
        for i, h in enumerate(heads)
    )
    text = f"The conversation history before this point was compacted into the following summary:\n\n<summary>\n{body}\n</summary>"
    s.messages.append({"role": "user", "content": text})
    ask(s)
    end = s.chars() + chars
    while s.chars() < end:
        rng.choice((ask, ask, tell, lambda scene: step(scene, rng)))(s)
    return s


def conversation(rng: Random, tokens: int, head: int = 0, varied: bool = False) -> Scene:
    """One conversation of about `tokens` tokens besides a head of about `head` tokens; `varied` as in Scene."""
    chars, head_chars = int(tokens * CHARS_PER_TOKEN), int(head * CHARS_PER_TOKEN)
    kind = rng.random() if tokens > 60 else rng.uniform(0.4, 0.92)
    if kind < 0.4:
        s = dense(rng, chars, head_chars, varied)
    elif kind < 0.72:
        s = mixed(rng, chars, head_chars, varied)
    elif kind < 0.92:
        s = single(rng, chars, head_chars, varied)
    elif kind < 0.95:
        s = summarised(rng, chars, head_chars, varied)
    elif kind < 0.98:
        s = compaction(rng, chars)
    else:
        s = title(rng)
    if s.mode.dropped:
        for m in s.messages[:-3]:
            m.pop("reasoning_content", None)
    return s


@dataclass(frozen=True, slots=True)
class Sample:
    """Token ids and, for each, whether predicting it counts."""

    ids: list[int]
    mask: list[bool]


class Encoder:
    """Conversations to samples."""

    def __init__(self, tokenizer: Tokenizer, template: Template) -> None:
        self.tokenizer, self.template = tokenizer, template
        self.id = {
            t: tokenizer.token_to_id(t)
            for t in ("<|im_start|>", "<|im_end|>", "<think>", "</think>")
        }
        self.role = tokenizer.encode("assistant", add_special_tokens=False).ids
        self.blank = tokenizer.encode("\n\n", add_special_tokens=False).ids

    def ids(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def sample(self, scene: Scene) -> Sample:
        ids = self.ids(self.template.render(scene))
        return Sample(ids, self.mask(ids))

    def mask(self, ids: list[int]) -> list[bool]:
        """Counts what the model itself writes: after the opener of an assistant turn, up to <|im_end|>."""
        out = [False] * len(ids)
        lead = [self.id["<|im_start|>"], *self.role]
        i = 0
        while i < len(ids):
            if ids[i : i + len(lead)] != lead:
                i += 1
                continue
            i += len(lead) + 1
            if ids[i] == self.id["<think>"]:
                empty = ids[i + 1 : i + 3] == [*self.blank, self.id["</think>"]]
                i += 4 if empty else 2
                write = True
            else:
                write = False
            while ids[i] != self.id["<|im_end|>"]:
                out[i] = write
                i += 1
            out[i] = write
        return out


def drill(rng: Random, tokens: int, low: int, high: int) -> Sample:
    """Random stretches of tokens that come back in any order: nothing counts but copying what followed before."""
    ids: list[int] = []
    mask: list[bool] = []
    known: list[list[int]] = []
    while len(ids) < tokens:
        if known and rng.random() < 0.6:
            stretch = rng.choice(known)
            mask += [False] + [True] * (len(stretch) - 1)
        else:
            stretch = [rng.randrange(low, high) for _ in range(rng.randint(3, 16))]
            known.append(stretch)
            mask += [False] * len(stretch)
        ids += stretch
    return Sample(ids, mask)


def stream(
    rng: Random,
    encoder: Encoder,
    sizes: Sequence[int],
    heads: Sequence[int],
    drills: float,
    varied: bool,
    wide: bool,
) -> Iterator[Sample]:
    """Endless samples; sizes and heads in tokens are drawn at random, `drills` is the share of drills."""
    plain = encoder.tokenizer.token_to_id("<|endoftext|>")
    while True:
        if rng.random() < drills:
            yield drill(rng, min(rng.choice(sizes), 512), 256, plain)
        else:
            scene = conversation(rng, rng.choice(sizes), rng.choice(heads), varied)
            if wide:
                widen(scene, rng, HELD_WORDS)
            yield encoder.sample(scene)


def recall_probe(
    rng: Random, distance: int, thinking: bool, held: bool = True
) -> tuple[Scene, Fact]:
    """One fact, about `distance` tokens of other turns, then the question for it (last message: the true answer)."""
    s = Scene(
        rng, Mode(thinking=thinking, effort=rng.choice(("xhigh", "medium", "low"))), held=held
    )
    fact = make_fact(rng, held)
    s.facts.append(fact)
    s.turn(fact.tell, acknowledge(fact), "The user tells me a fact. I note it.")
    begin = s.chars()
    while s.chars() - begin < distance * CHARS_PER_TOKEN:
        rng.choice((passage, passage, lambda scene: step(scene, rng)))(s)
    s.facts = [f for f in s.facts if f.key == fact.key][-1:]
    recall(s, s.facts[0])
    return s, s.facts[0]


def call_probe(rng: Random, head: int, thinking: bool, new_name: bool = False) -> Scene:
    """A command to run, in a held-out phrasing, behind a head of about `head` tokens (last message: the report of its
    output). `new_name` takes a tool name never trained on.
    """
    s = Scene(
        rng, Mode(thinking=thinking, effort=rng.choice(("xhigh", "medium", "low"))), held=True
    )
    s.shell = make_shell(rng, new_name)
    s.tools = offer(rng, s.shell, rng.randint(1, 3) if head < 4000 else 11, head >= 4000)
    if head:
        s.mode.stamped = s.mode.carried = head >= 4000
        left = int(head * CHARS_PER_TOKEN) - sum(len(str(t)) for t in s.tools)
        s.messages.append(
            {"role": "system", "content": system_prompt(rng, max(left, 0), paragraphs())}
        )
    run(s)
    return s
