"""Ways to ask: owns how requests are worded, and keeps what is trained apart from what the scores ask.

A phrasing is a text with places ({c} a command, {K} a key, {t} words to repeat …). Trained ones are put together from openers,
cores and closers; a held-out one differs from every trained one in at least two words, three if it is long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from random import Random

from tools.demo_words import pick

LONG_WORDS = 6

# Before a request in the imperative ("run {c}"), whatever is asked for.
OPENERS = (
    "", "", "", "", "", "", "Please", "Please", "Please", "Now", "Now please", "Can you", "Can you please", "Could you", "Would you", "Would you please",
    "Will you", "I want you to", "I need you to", "I ask you to", "I'd like you to", "You should", "You must", "Let us", "Let's", "Next,", "Next, please",
    "First,", "Then", "OK,", "OK, now", "Okay,", "So", "So please", "Well,", "Hey,", "Hi,", "Hello,", "Hi, can you", "Hello, please", "Go ahead and", "Go on and",
    "Quickly", "Just", "Again,", "Once again,", "And", "And now", "Also", "Also, please", "Your task:", "Task:", "Help me and", "Be so kind and", "It is time to",
    "Time to", "Before we go on,", "Thanks. Now", "Good. Now", "Great. Please", "Do me a favour and", "If you can,", "My request:", "We have to", "Listen:",
)  # fmt: skip
CLOSERS = (
    "", "", "", "", "", "", "", "", "", "", "please", "now", "for me", "now please", "right now", "right away", "again", "if you can", "then", "thanks",
    "today", "at once", "first", "once", "for us", "quickly", "if possible", "so that I can see it", "as I said", "my friend",
)  # fmt: skip
QUESTION_OPENERS = (
    "", "", "", "", "", "", "Now,", "So,", "And", "OK,", "Please:", "Tell me:", "Say:", "One question:", "A question:", "My question:", "Question:", "Hello,",
    "Hi,", "Hey,", "Well,", "Then", "Next:", "Again,", "Once more,", "I forgot,", "Help me,", "I ask you:", "Sorry,", "First,", "Also,", "But", "Listen,",
    "I wonder,", "I want to know:", "Let me ask:", "Let me ask you:", "Thanks. And", "Good. And", "I do not remember:", "By the way,", "Before we go on:",
)  # fmt: skip
QUESTION_CLOSERS = (
    "", "", "", "", "", "", "", "", "please", "now", "then", "today", "exactly", "by the way", "for you", "do you know", "do you know it", "can you say", "I wonder",
    "I forgot", "tell me", "my friend",
)  # fmt: skip

RUN_CORES = (
    "run {o}", "run {o}", "run {o}", "execute {o}", "execute {o}", "call {n} with {o}", "use {n} to run {o}", "use {n} for {o}", "use the {n} tool to run {o}",
    "use the {n} tool to execute {o}", "use the shell to run {o}", "use a tool to run {o}", "launch {o}", "start {o}", "try {o}", "type {o}", "do {o}",
    "issue {o}", "perform {o}", "invoke {o}", "enter {o}", "test {o}", "send {o} to the shell", "give {o} to {n}", "pass {o} to {n}", "show the output of {o}",
    "give me the output of {o}", "tell me what {o} prints", "tell me what {o} says", "check what {o} prints", "find out what {o} returns", "look at the output of {o}",
    "see what {o} gives", "get me the output of {o}",
)  # fmt: skip
RUN_QUESTIONS = (
    "what does {o} print?", "what does {o} return?", "what is the output of {o}?", "what is printed by {o}?", "what happens when you run {o}?", "what comes out of {o}?",
    "what do you get from {o}?", "how does {o} answer?",
)  # fmt: skip
RUN_BARE = (
    "$ {c}", "`{c}`", "Command: {c}", "Run: {c}", "Execute: {c}", "Shell: {c}", "{n}: {c}", "Run this:\n{c}", "Execute this:\n{c}", "Run this:\n```\n{c}\n```",
    "Run the code:\n```\n{c}\n```", "Output of `{c}`?", "The output of {c}, please", "I need the output of `{c}`", "This is to be run: {c}", "Run the following: {c}",
)  # fmt: skip
RUN_OBJECTS = (
    "`{c}`", "`{c}`", "`{c}`", "`{c}`", "{c}", "{c}", '"{c}"', "'{c}'", "the command `{c}`", "the command `{c}`", "the command {c}", "this command: {c}",
    "this command: `{c}`", "the shell command `{c}`", "the shell command {c}", "the line `{c}`", "the following command: {c}", "the following: `{c}`",
    "a command: {c}", "command `{c}`", "this: {c}", "my command `{c}`",
)  # fmt: skip
RUN_CLOSERS = (
    "", "", "", "", "", "", "", "with the {n} tool", "with {n}", "using {n}", "through {n}", "in the shell", "in a shell", "on this machine", "here", "please", "now",
    "for me", "and tell me what it prints", "and tell me the output", "and give me the output", "and show its output", "and report its output", "then tell me the output",
    "and say what comes out", "and report", "and print the result", "and tell me the result", "and give me what it prints", "and let me see", "then report it to me",
    "right now", "again", "and nothing else", "and wait for it", "in this folder", "once",
)  # fmt: skip
HELD_RUN = (
    "Kindly execute `{c}` for me.", "I would like you to run this command: {c}", "Try `{c}` in the terminal.", "Could you please run `{c}` and show me the result?",
    "Start the command `{c}` and report back.", "Run the program `{c}`, then tell me what it said.",
)  # fmt: skip

ASK_CORES = (
    "tell me {K}", "tell me {K}", "tell me what {K} is", "say {K}", "say what {K} is", "give me {K}", "show me {K}", "look up {K}", "recall {K}", "name {K}", "find {K}",
    "repeat what {K} is", "let me know {K}", "let me know what {K} is", "answer me what {K} is", "write {K}", "read {K} back to me", "tell me what I said about {K}",
    "remember {K} and say it",
)  # fmt: skip
ASK_QUESTIONS = (
    "what is {K}?", "what is {K}?", "what is {K}?", "what is {K}?", "what was {K}?", "what's {K}?", "which is {K}?", "which one is {K}?", "what about {K}?",
    "what did I say {K} is?", "what did I say about {K}?", "what did I tell you about {K}?", "have I told you {K}?", "did I tell you {K}?", "{K}?", "and {K}?",
    "what have I called {K}?", "how did I say {K} is?", "is there something I said about {K}?", "do you have {K}?", "do you know what {K} is?", "what should {K} be?",
    "I forgot {K}. What is it?", "I need {K}. What is it?", "I need {K}.", "I want {K}.", "I want to know {K}.", "I have forgotten {K}.", "{K}, what is it?",
    "about {K}: what is it?", "what do you know about {K}?",
)  # fmt: skip
HELD_ASK = (
    "Can you tell me {K}?", "Do you remember {K}?", "I can't recall {K}, what was it again?", "Remind me, what is {K}?", "Quick question: what is {K}?",
)  # fmt: skip

REPEAT_CORES = (
    "repeat after me: {t}", "say: {t}", "say {t}", "repeat this: {t}", "repeat: {t}", "repeat the words {t}", "echo {t}", "write: {t}", "write this: {t}", "print {t}",
    "copy this: {t}", "say these words: {t}", "say the words: {t}", "answer: {t}", "repeat what I say: {t}", "speak after me: {t}", "type: {t}", "give back: {t}",
    "say back to me: {t}", "send back these words: {t}", "say the following: {t}", "repeat the following: {t}", 'say "{t}"', 'repeat "{t}"', "recite {t}",
)  # fmt: skip
HELD_REPEAT = (
    "Say this after me, word for word: {t}",
    "Here are words to be repeated: {t}",
    "Parrot these words back: {t}",
)

SUM_CORES = (
    "compute {e}", "work out {e}", "solve {e}", "add up {e}", "evaluate {e}", "give me {e}", "tell me {e}", "say what {e} is", "tell me the result of {e}", "calculate {e}",
    "give the result of {e}", "find {e}", "do the sum {e}", "count {e}",
)  # fmt: skip
SUM_QUESTIONS = (
    "what is {e}?", "what is {e}?", "what's {e}?", "how much is {e}?", "{e}?", "{e} = ?", "{e}", "{e} is what?", "what does {e} make?", "what do you get for {e}?",
    "how many is {e}?", "what is the result of {e}?",
)  # fmt: skip
HELD_SUM = ("Can you work out how much {e} makes?", "Quick sum: what does {e} give?")

CAPITAL_CORES = (
    "tell me the capital of {c}", "give me the capital of {c}", "say which city is the capital of {c}", "find the capital of {c}", "write the capital of {c}",
    "tell me what the capital of {c} is", "say the capital city of {c}",
)  # fmt: skip
CAPITAL_QUESTIONS = (
    "what is the capital of {c}?", "what is the capital of {c}?", "which city is the capital of {c}?", "do you know the capital of {c}?", "the capital of {c}?",
    "capital of {c}?", "what is the capital city of {c}?", "{c} has which capital?", "what is {c}'s capital?", "which capital has {c}?",
)  # fmt: skip
HELD_CAPITAL = (
    "Name the city that is the capital of {c}.",
    "Which town do they call the capital of {c}?",
)


def bare_words(text: str) -> tuple[str, ...]:
    """Words of a phrasing, in small letters, without marks; places stay."""
    return tuple(re.findall(r"\{\w\}|[a-z0-9']+", re.sub(r"\{\w\}|.", _lower, text)))


def _lower(found: re.Match[str]) -> str:
    return found[0] if len(found[0]) > 1 else found[0].lower()


def distance(a: Sequence[str], b: Sequence[str]) -> int:
    """Words to change, add or take away to make one of the other (Levenshtein 1966)."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


@cache
def apart(text: str, held: tuple[str, ...]) -> bool:
    """Whether a phrasing may be trained, given the held-out ones of its kind."""
    said = bare_words(text)
    for other in held:
        words = bare_words(other)
        if distance(said, words) < (3 if len(words) >= LONG_WORDS else 2):
            return False
    return True


def draw(rng: Random, make: Callable[[], str], held: tuple[str, ...]) -> str:
    """A phrasing from `make` that is apart from the held-out ones."""
    while True:
        text = make()
        if apart(text, held):
            return text


def upper_first(text: str) -> str:
    return text[:1].upper() + text[1:]


def joined(rng: Random, opener: str, core: str, closer: str, mark: str) -> str:
    """One sentence; now and then without its mark, or in small letters."""
    if core[-1] in ".?!" and closer:
        core = core[:-1].rstrip() + rng.choice((" ", ", ")) + closer + core[-1]
        closer = ""
    text = " ".join(p for p in (opener, core, closer) if p)
    if mark and text[-1] not in ".?!:=\n`" and rng.random() < 0.6:
        text += (
            "?"
            if mark == "?" or opener.split(" ")[0] in ("Can", "Could", "Would", "Will")
            else mark
        )
    elif rng.random() < 0.05:
        text = text.rstrip(".?!")
    return text if rng.random() < 0.08 else upper_first(text)


def imperative(rng: Random, cores: Sequence[str], closers: Sequence[str] = CLOSERS) -> str:
    """A request put together; a place for bare words stays at the end, so that it is clear where they end."""
    core = pick(rng, cores)
    bare = core.endswith(("{t}", " {c}"))
    return joined(
        rng, pick(rng, OPENERS), core, "" if bare else pick(rng, closers), "" if bare else "."
    )


def question(rng: Random, cores: Sequence[str]) -> str:
    return joined(
        rng, pick(rng, QUESTION_OPENERS), pick(rng, cores), pick(rng, QUESTION_CLOSERS), "?"
    )


def either(
    rng: Random, questions: Sequence[str], requests: Sequence[str], held: tuple[str, ...]
) -> str:
    """A question or a request, apart from the held-out ones."""

    def make() -> str:
        return question(rng, questions) if rng.random() < 0.6 else imperative(rng, requests)

    return draw(rng, make, held)


def _run(rng: Random) -> str:
    shape = rng.random()
    if shape < 0.12:
        return pick(rng, RUN_BARE)
    what = pick(rng, RUN_OBJECTS)
    if what.endswith("{c}"):
        cores = [c for c in RUN_CORES if c.endswith("{o}")]
        return imperative(rng, [pick(rng, cores).replace("{o}", what)])
    if shape < 0.25:
        return question(rng, [pick(rng, RUN_QUESTIONS).replace("{o}", what)])
    return imperative(rng, [pick(rng, RUN_CORES).replace("{o}", what)], RUN_CLOSERS)


def run_form(rng: Random, held: bool) -> str:
    """How a command {c} is asked to be run, maybe with the tool's name {n}."""
    return pick(rng, HELD_RUN) if held else draw(rng, lambda: _run(rng), HELD_RUN)


def ask_form(rng: Random) -> str:
    """How a told fact {K} is asked for, never as in HELD_ASK."""
    return either(rng, ASK_QUESTIONS, ASK_CORES, HELD_ASK)


def repeat_form(rng: Random, held: bool) -> str:
    """How words {t} are asked to be repeated."""
    return (
        pick(rng, HELD_REPEAT)
        if held
        else draw(rng, lambda: imperative(rng, REPEAT_CORES), HELD_REPEAT)
    )


def sum_form(rng: Random, held: bool) -> str:
    """How a sum {e} is asked for."""
    return pick(rng, HELD_SUM) if held else either(rng, SUM_QUESTIONS, SUM_CORES, HELD_SUM)


def capital_form(rng: Random, held: bool) -> str:
    """How a country's ({c}) capital is asked for."""
    if held:
        return pick(rng, HELD_CAPITAL)
    return either(rng, CAPITAL_QUESTIONS, CAPITAL_CORES, HELD_CAPITAL)
