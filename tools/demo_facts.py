"""Facts a user tells and asks for later: owns their phrasings; held-out phrasings are used by the scores only."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tools.demo_phrases import HELD_ASK, apart, ask_form, question, upper_first
from tools.demo_words import ANIMALS, RELATIVES, THINGS, name, pick, value, word

TELL = (
    "Remember that {K} is {V}.",
    "Please remember that {K} is {V}.",
    "Please remember: {K} is {V}.",
    "{K} is {V}.",
    "{K} is {V}. Please remember it.",
    "By the way, {K} is {V}.",
    "Note that {K} is {V}.",
    "For later: {K} is {V}.",
    "I want you to know that {K} is {V}.",
    "Here is a fact: {K} is {V}.",
    "Hello, {K} is {V}.",
    "Hi! Please remember this: {K} is {V}.",
    "Store this: {K} = {V}",
    "Let me tell you something. {K} is {V}.",
    "Remember {K}: {V}",
    "Please remember {K} {V}.",
    "Hello, please remember {K} {V}.",
)
BEFORE_TELL = (
    "Remember:", "Please note:", "FYI,", "Listen,", "I should tell you that", "You should know that", "Let me say that", "Also,",
    "It may help to know that", "One thing:", "Another fact:", "Before I forget,", "Write down that", "Take note:", "Fact:", "Important:",
    "Be aware that", "Learn this:", "As a reminder,", "I told you before that", "Here is something:", "First,", "Hey,", "OK,", "So,",
    "Well,", "Now,", "Good to know:", "Save this:", "Note:", "Memorise this:", "My note says that", "It is true that", "Hello!",
)  # fmt: skip
AFTER_TELL = (
    "", "", "", "", ", remember it.", ", please remember.", ", note it down.", ". I will ask you later.", ". Do not lose it.", ", by the way.",
    ", and do not forget it.", ". Got it?", ". Remember that.", ", save it.", ". That is all.", ". Can you remember it?", "!", ", OK?",
)  # fmt: skip
HELD_TELL = (
    "Keep in mind that {K} is {V}.",
    "Just so you know, {K} is {V}.",
    "Don't forget: {K} is {V}.",
    "One more thing, {K} is {V}, keep it for later.",
)
MINE = {
    "name": "name", "favourite colour": "colour", "favourite food": "food", "favourite city": "city",
    "favourite word": "word", "favourite number": "number", "lucky number": "number", "password": "code",
    "user name": "word", "nickname": "name", "home town": "city", "birthday": "date", "phone number": "number",
    "room number": "number", "seat": "code", "order number": "number", "ticket number": "number", "account": "code",
    "favourite animal": "word", "favourite drink": "food", "desk number": "number", "badge number": "number",
    "door code": "code", "pin": "number", "street": "name", "best friend": "name", "shoe size": "number",
    "middle name": "name", "favourite band": "pair", "flight number": "code", "locker": "code", "job": "word",
}  # fmt: skip
THE = {
    "code word": "word", "secret word": "word", "password": "code", "magic number": "number", "project name": "word",
    "meeting room": "code", "deadline": "date", "meeting time": "time", "team name": "pair", "server name": "word",
    "port": "number", "build number": "number", "branch": "word", "budget": "number", "new colour": "colour",
    "key": "code", "token": "code", "safe word": "word", "passphrase": "pair", "access code": "code", "version": "code",
    "winner": "name", "host": "word", "release name": "word", "room": "code", "answer": "any", "secret": "any",
}  # fmt: skip
OF = {
    "code": "code", "name": "name", "colour": "colour", "number": "number", "password": "code", "owner": "name",
    "price": "number", "label": "word", "date": "date", "address": "name", "key": "code", "keyword": "word",
    "size": "number", "place": "city", "start": "time", "nickname": "word", "id": "code",
}  # fmt: skip
HELD_KEYS = {
    "my locker combination": "number", "my cat's name": "name", "the wifi password": "code", "my hotel": "name",
    "the launch code": "code", "the name of the boat club": "pair", "my favourite tree": "word",
    "the parking space": "code", "my sister's birthday": "date", "the colour of the barn": "colour",
    "my train": "number", "the call sign": "word",
}  # fmt: skip
SPECIAL = (
    ("My name is {V}.", ("What is my name?", "Who am I?", "Do you know my name?"), "Your name is {V}.", "name"),
    ("I am called {V}.", ("What am I called?", "What is my name?"), "You are called {V}.", "name"),
    ("I live in {V}.", ("Where do I live?", "Which city do I live in?"), "You live in {V}.", "city"),
    ("I come from {V}.", ("Where do I come from?", "Where am I from?"), "You come from {V}.", "city"),
    ("I work at {V}.", ("Where do I work?", "Who do I work for?"), "You work at {V}.", "name"),
    ("I like {V}.", ("What do I like?", "Tell me what I like."), "You like {V}.", "food"),
    ("My dog is called {V}.", ("What is my dog called?", "What is my dog's name?"), "Your dog is called {V}.", "name"),
    ("My cat is called {V}.", ("What is my cat called?", "What is my cat's name?"), "Your cat is called {V}.", "name"),
    ("The meeting is at {V}.", ("When is the meeting?", "What time is the meeting?"), "The meeting is at {V}.", "time"),
    ("I am {V} years old.", ("How old am I?", "What is my age?"), "You are {V} years old.", "number"),
    ("I have {V} books.", ("How many books do I have?",), "You have {V} books.", "number"),
    ("I parked the car at {V}.", ("Where did I park?", "Where is the car?"), "You parked the car at {V}.", "code"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact: how it is told, asked and answered."""

    key: str
    value: str
    tell: str
    asks: tuple[str, ...]
    answer: str


def yours(key: str) -> str:
    """The key from the model's side: `my dog's name` becomes `your dog's name`."""
    return "your" + key[2:] if key.startswith("my ") else key


def compound_key(rng: Random) -> str:
    """A key of words that need not belong together, so that keys are copied and not completed from habit."""
    noun = word(rng) if rng.random() < 0.5 else pick(rng, THINGS)
    attr = pick(rng, (*OF, *MINE, *THE))
    shape = rng.randrange(5)
    if shape == 0:
        return f"my {noun} {attr}"
    if shape == 1:
        return f"the {noun} {attr}"
    if shape == 2:
        return f"my {pick(rng, RELATIVES + ANIMALS)}'s {noun}"
    if shape == 3:
        return f"the {attr} of the {word(rng)} {noun}"
    return f"{rng.choice(('my', 'the'))} {word(rng)} {noun}"


def random_key(rng: Random) -> tuple[str, str]:
    """A key as the user says it, with the kind of its value; never a held-out one."""
    while True:
        key, kind = _any_key(rng)
        if key not in HELD_KEYS:
            return key, kind


def _any_key(rng: Random) -> tuple[str, str]:
    shape = rng.random()
    if shape < 0.25:
        attr = pick(rng, tuple(MINE))
        return f"my {attr}", MINE[attr]
    if shape < 0.45:
        attr = pick(rng, tuple(THE))
        return f"the {attr}", THE[attr]
    if shape < 0.65:
        return compound_key(rng), "any"
    attr = pick(rng, tuple(OF))
    if shape < 0.8:
        return f"the {attr} of the {pick(rng, THINGS)}", OF[attr]
    if shape < 0.9:
        return f"my {pick(rng, ANIMALS + RELATIVES + THINGS)}'s {attr}", OF[attr]
    return f"{name(rng)}'s {attr}", OF[attr]


def tell_form(rng: Random, held: bool) -> str:
    """How a key {K} and its value {V} are told."""
    while True:
        form = _tell(rng, held)
        if held or apart(form, HELD_TELL):
            return form


def _tell(rng: Random, held: bool) -> str:
    if held or rng.random() < 0.4:
        return pick(rng, HELD_TELL if held else TELL)
    lead = pick(rng, BEFORE_TELL) + " " if rng.random() < 0.7 else ""
    core = rng.choice(("{K} is {V}", "{K} is {V}", "{K} is {V}", "{K}: {V}", "{K} = {V}"))
    tail = pick(rng, AFTER_TELL) or "."
    return lead + core + tail


def make_fact(rng: Random, held: bool = False) -> Fact:
    """A fact with a fresh value; `held` takes keys, values and phrasings never trained on."""
    if not held and rng.random() < 0.1:
        tell, asks, answer, kind = pick(rng, SPECIAL)
        v = value(rng, kind)
        said = tuple(question(rng, asks) for _ in range(4))
        return Fact(tell, v, tell.format(V=v), said, answer.format(V=v))
    key, kind = pick(rng, tuple(HELD_KEYS.items())) if held else random_key(rng)
    if not held and rng.random() < 0.2:
        kind = "any"
    v = value(rng, kind, held)
    tell = tell_form(rng, held).format(K=key, V=v)
    forms = HELD_ASK if held else tuple(ask_form(rng) for _ in range(6))
    asks = tuple(upper_first(a.format(K=key)) for a in forms)
    return Fact(key, v, upper_first(tell), asks, f"{upper_first(yours(key))} is {v}.")
