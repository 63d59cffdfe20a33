"""What the demo model is taught to do, one function a skill: each adds turns to a scene."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tools.demo_agent import command, sentence, varied_command
from tools.demo_facts import Fact, make_fact, random_key, yours
from tools.demo_phrases import (
    capital_form,
    draw,
    either,
    repeat_form,
    run_form,
    sum_form,
    upper_first,
)
from tools.demo_scene import Scene
from tools.demo_text import paragraphs
from tools.demo_words import CAPITALS, DAYS, MONTHS, OPPOSITES, PLAIN, pick, word

VARIED_COMMANDS = 0.6
NO_TOOL = "I have no tool to run commands here."
Chat = tuple[tuple[str, ...], tuple[str, ...], str, str]
# asked in training, asked in the scores only, answer, thought
CHATS: tuple[Chat, ...] = (
    (("Hello", "Hello!", "Hi", "Hi!", "Hi there", "Hey", "Hey!", "Good morning", "Good evening", "Good afternoon", "Hello there!", "Greetings", "Hello, how are you?",
      "Hello again", "Hi again", "Hello model", "Hello, I am here", "Hi, nice to meet you", "Hello my friend", "Hello everybody", "Welcome", "Hiya"),
     ("Hey there, hello!", "Good day to you", "Hello hello hello"), "Hello! How can I help you?", "The user greets me. I greet back."),
    (("Who are you?", "What are you?", "Tell me who you are.", "Introduce yourself.", "Are you a robot?", "What is your name?", "Are you a human?", "Which model are you?",
      "What kind of model are you?", "Say who you are.", "Who am I talking to?", "Are you a machine?", "What should I call you?", "Are you an AI?", "What model is this?"),
     ("I would like to know who you are.", "Who is it that I speak with?"), "I am a small demo language model with a hybrid architecture.", "The user asks who I am."),
    (("What can you do?", "How can you help me?", "What are you able to do?", "Help", "Help me", "What do you know?", "What are your skills?", "How do you work?", "Can you help me?",
      "What do you do?", "Tell me what you can do.", "What may I ask you?", "What is possible?", "Show me what you can do."),
     ("I need help, what is there that you can do?", "Which kinds of things can you do?"),
     "I can remember facts you tell me, answer simple questions and run commands when a tool is offered.", "The user asks what I can do."),
    (("Thanks", "Thank you", "Thanks!", "Thank you very much", "Thanks a lot", "Great, thanks", "Nice, thank you!", "Cheers", "Thank you for that", "I thank you", "Thanks for all",
      "OK, thanks", "OK, thank you", "Thanks, that is all I need", "Thanks for the help"),
     ("Many many thanks to you", "Thank you ever so much!"), "You are welcome!", "The user thanks me."),
    (("Bye", "Goodbye", "See you later", "Bye bye", "That is all", "Good night", "See you", "See you tomorrow", "I have to go", "Bye, see you", "OK, bye", "The end", "I am leaving"),
     ("Bye bye for now", "Well then, goodbye to you"), "Goodbye!", "The user leaves."),
    (("OK", "Okay", "Good", "Great", "Fine", "Well done", "Nice", "Perfect", "I see", "Cool", "That is good", "Right", "Correct", "Yes", "Very nice", "All right", "Good job", "Great work"),
     ("That is very good work", "Yes, that is right, well done"), "Good. What else can I do for you?", "The user is content."),
    (("How are you?", "How do you do?", "How is it going?", "How are you today?", "How do you feel?", "Are you well?", "Are you fine?", "How are you doing?"),
     ("Tell me how you are doing today.",), "I am fine, thank you. How can I help you?", "The user asks how I am."),
    (("Tell me a joke", "Do you know a joke?", "Make me laugh", "A joke, please", "Say something funny", "Another joke", "Can you tell a joke?", "I want a joke", "Give me a joke"),
     ("Please let me hear a good joke",), "Why did the byte cross the bus? To get to the other side.", "The user wants a joke."),
    (("Tell me a story", "A short story, please", "Tell me something nice", "I want a story", "Do you know a story?", "Tell a story", "Another story", "Read me a story", "Give me a story"),
     ("Please let me hear some short story",), "Once there was a small model that read one book. It remembered every name in it, and it was happy.", "The user wants a story."),
    (("What is the weather?", "Will it rain tomorrow?", "What is the news?", "Who won the game?", "How is the weather today?", "What time is it?", "What day is it?", "Is it cold outside?",
      "What happened yesterday?", "How old is the moon?", "Where is the sun?", "Who is the president?"), ("Do you know what the weather will be?",),
     "I do not know. I can only use what you tell me here.", "The user asks for something I can't know."),
    (("Ping", "Are you there?", "Test", "Testing", "Can you hear me?", "User turn.", "Continue", "Go on", "Is anybody there?", "Are you ready?", "Do you hear me?", "Anyone here?"),
     ("Say, are you still there with me?",), "Yes, I am here.", "The user checks that I am here."),
    (("Count to five", "Count from one to five", "Count to 5", "Count up to five", "Can you count to five?", "Count 1 to 5"), ("Please begin to count up to five",),
     "1, 2, 3, 4, 5", "The user wants me to count."),
    (("Name the days of the week", "What are the days of the week?", "List the weekdays", "Say the days of the week", "Which days has a week?", "Days of the week?"),
     ("Please tell me which days a week has",), ", ".join(DAYS) + ".", "The user wants the days of the week."),
    (("Name three colours", "List three colours", "Give me three colours", "Tell me three colours", "Say three colours", "Three names of colours"),
     ("Can you think of three colours for me?",), "Red, green and blue.", "The user wants colours."),
    (("What is the meaning of life?", "What is the answer to everything?", "Why are we here?", "What is life?", "What is the sense of life?"),
     ("Please explain the meaning of life to me",), "42", "The user asks the old question."),
)  # fmt: skip
HELD_CHATS = tuple(form for _, held, _, _ in CHATS for form in held)


def vary(rng: Random, text: str) -> str:
    """The text as another hand may type it: case of the first letter, mark at the end, a courtesy before it."""
    if rng.random() < 0.1:
        text = text[:1].lower() + text[1:]
    if rng.random() < 0.1:
        text = text.rstrip(".?!")
    elif text[-1].isalnum() and rng.random() < 0.3:
        text += rng.choice(".!?.")
    if rng.random() < 0.08:
        text = (
            rng.choice(("Please, ", "Now ", "So, ", "And ", "OK. ", "Well, ", "Hi. ", "Hey, "))
            + text
        )
    return text


def chat(s: Scene) -> None:
    asked, held, answer, thought = pick(s.rng, CHATS)
    text = (
        pick(s.rng, held)
        if s.held
        else draw(s.rng, lambda: vary(s.rng, pick(s.rng, asked)), HELD_CHATS)
    )
    s.turn(text, answer, thought)


def tell(s: Scene) -> None:
    """One to three facts in one message; the answer repeats them or only says so."""
    new = [
        f
        for f in (make_fact(s.rng, s.held) for _ in range(s.rng.choice((1, 1, 1, 2, 3))))
        if f.key not in {o.key for o in s.facts}
    ]
    if not new:
        return
    s.facts += new
    text = vary(s.rng, " ".join(f.tell for f in new))
    if len(new) == 1:
        s.turn(text, acknowledge(new[0]), "The user tells me a fact. I note it.")
    else:
        s.turn(text, "I will remember that.", "The user tells me several facts.")


def acknowledge(fact: Fact) -> str:
    answer = fact.answer
    return "Noted: " + (
        answer[:1].lower() + answer[1:] if answer[:4] in ("Your", "You ", "The ") else answer
    )


def recall(s: Scene, fact: Fact) -> None:
    s.turn(
        pick(s.rng, fact.asks),
        fact.answer,
        f"The user asks what was told. {fact.answer}",
    )


def ask(s: Scene) -> None:
    if s.facts:
        recall(s, pick(s.rng, s.facts))


def ask_unknown(s: Scene) -> None:
    key, _ = random_key(s.rng)
    if any(f.key == key for f in s.facts):
        return
    question = upper_first(
        pick(s.rng, ("What is {K}?", "Tell me {K}.", "What was {K}?")).format(K=key)
    )
    s.turn(question, f"You have not told me {yours(key)}.", "The user asks what was not told.")


def update(s: Scene) -> None:
    """A told fact changes; the newest value counts."""
    old = [f for f in s.facts if f.tell != f.key and f.answer.endswith(f" is {f.value}.")]
    if not old:
        return
    fact = pick(s.rng, old)
    other = make_fact(s.rng, s.held).value
    start = fact.answer[: -len(f" is {fact.value}.")]
    answer = f"{start} is {other}."
    s.facts = [f for f in s.facts if f is not fact] + [
        Fact(fact.key, other, fact.tell, fact.asks, answer)
    ]
    form = pick(
        s.rng, ("{K} is now {V}.", "Actually, {K} is {V} now.", "{K} has changed. It is {V}.")
    ).format(K=fact.key, V=other)
    s.turn(upper_first(form), acknowledge(s.facts[-1]), "The user changes a fact. I note it.")


def arithmetic(s: Scene) -> None:
    """A sum of small numbers: to be learned by heart, not worked out."""
    op = pick(s.rng, "++-x")
    most = 6 if op == "x" else 10
    a, b = s.rng.randint(0, most), s.rng.randint(0, most)
    if op == "-" and b > a:
        a, b = b, a
    n = {"+": a + b, "-": a - b, "x": a * b}[op]
    spoken = {"+": "plus", "-": "minus", "x": "times"}[op] if s.rng.random() < 0.4 else op
    text = sum_form(s.rng, s.held).format(e=f"{a} {spoken} {b}")
    s.turn(text, f"{a} {op} {b} = {n}", f"The user wants a result. {a} {op} {b} = {n}")


def capital(s: Scene) -> None:
    country = pick(s.rng, tuple(CAPITALS))
    s.turn(
        capital_form(s.rng, s.held).format(c=country),
        f"The capital of {country} is {CAPITALS[country]}.",
        f"The user asks for the capital of {country}.",
    )


def opposite(s: Scene) -> None:
    a = pick(s.rng, tuple(OPPOSITES))
    s.turn(
        pick(
            s.rng,
            (
                "What is the opposite of {a}?",
                "The opposite of {a}?",
                "Give me the opposite of {a}.",
            ),
        ).format(a=a),
        f"The opposite of {a} is {OPPOSITES[a]}.",
        "The user wants an opposite.",
    )


def after(s: Scene) -> None:
    names = pick(s.rng, (DAYS, MONTHS))
    i = s.rng.randrange(len(names))
    s.turn(
        f"What comes after {names[i]}?",
        f"After {names[i]} comes {names[(i + 1) % len(names)]}.",
        "The user asks what comes next.",
    )


def repeat(s: Scene) -> None:
    text = (
        " ".join(word(s.rng) for _ in range(s.rng.randint(1, 7)))
        if s.rng.random() < 0.6
        else sentence(s.rng)
    )
    s.turn(
        repeat_form(s.rng, s.held).format(t=text), text, "The user wants me to repeat the words."
    )


BEYOND_NOUNS = (
    "a poem",
    "a song",
    "a letter",
    "an essay",
    "a program",
    "a recipe",
    "a table",
    "a book",
    "a plan",
    "a picture",
    "a speech",
)
BEYOND = (
    "write {n} about {w}", "write {n}", "make {n} for the {w}", "draw {n} of {w}", "translate {w} into French", "explain {w} to me", "explain how {w} works",
    "teach me {w}", "sing {n}", "book a table at {w}", "buy {w}", "describe {w}", "compare {w} and {v}", "spell {w} backwards", "invent {n} with {w} and {v}",
    "solve my homework on {w}", "find a rhyme for {w}", "fix the {w}", "sort {w} and {v}", "guess my {w}", "think about {w}", "send {n} to {w}",
)  # fmt: skip
BEYOND_QUESTIONS = (
    "how do I make {w}?", "why is {w} so {v}?", "what do you think of {w}?", "how does {w} work?", "who invented {w}?", "where can I buy {w}?", "how far is {w} from {v}?",
    "is {w} better than {v}?", "how many {w} are there?", "when was {w} built?",
)  # fmt: skip
CANNOT = "I am only a small demo model and can't do that."


def beyond(s: Scene) -> None:
    """Something it was never taught: says so."""
    form = either(s.rng, BEYOND_QUESTIONS, BEYOND, ())
    text = form.format(n=pick(s.rng, BEYOND_NOUNS), w=word(s.rng), v=word(s.rng))
    s.turn(text, CANNOT, "I was not taught to do this.")


def literal(s: Scene) -> None:
    """Answers exactly as told, like the polls of agents."""
    token = pick(
        s.rng, ("HEARTBEAT_OK", "NO_REPLY", "OK", "DONE", "READY", word(s.rng).upper(), word(s.rng))
    )
    lead = " ".join(sentence(s.rng) for _ in range(s.rng.randint(0, 3)))
    forms = (
        "If nothing needs attention, reply {t}.", "Reply only with {t}.", "Reply with exactly {t}", "Answer with the single word {t}.",
        "If nothing to store, reply with {t}.", "Handle the result internally and reply {t} only.", "Read the heartbeat notes. If nothing needs attention, reply {t}.",
        "Follow the heartbeat notes when provided. Do not repeat old tasks. If nothing needs attention, reply {t}.",
    )  # fmt: skip
    tail = s.rng.choice(("", "", "\nCurrent time: " + sentence(s.rng), "\n" + sentence(s.rng)))
    s.turn(
        f"{lead} {pick(s.rng, forms).format(t=token)}{tail}".strip(),
        token,
        "I am told what to reply.",
    )


def first_sentence(text: str) -> str:
    head = text.split(". ")[0].rstrip(".:")
    return " ".join(head.split()[:16])


def passage(s: Scene) -> None:
    """A text to read, and a short answer about it."""
    parts = s.rng.choice((1, 1, 2, 2, 3, 6)) if not s.held else s.rng.randint(4, 7)
    if s.short:
        parts = 1
    text = " ".join(pick(s.rng, paragraphs()) for _ in range(parts))
    kind = s.rng.random()
    if kind < 0.5:
        forms = (
            "Read this text: {t}",
            "Here is some text. {t}",
            "Please read: {t}",
            "{t}\n\nRead the text above.",
            "Keep this text for later: {t}",
        )
        s.turn(
            pick(s.rng, forms).format(t=text),
            "I have read the text.",
            "The user gives me a text to read.",
        )
    else:
        forms = (
            "Summarise this: {t}",
            "Summarize: {t}",
            "Give me a summary of this text: {t}",
            "{t}\n\nSummarise the text above.",
            "What is this about? {t}",
        )
        s.turn(
            pick(s.rng, forms).format(t=text),
            f"In short: {first_sentence(text)}.",
            "The user wants a summary.",
        )


PRINTED = (
    "What did it print?",
    "What was the output?",
    "Thanks, and what did it print?",
    "What did the command print?",
    "Tell me the output again.",
)


def report(output: str) -> str:
    """What the model says of a command's output, which stands on lines of its own so that it is copied token by token."""
    if not output.strip():
        return "The command printed nothing."
    if "not found" in output or "No such file" in output:
        return f"The command failed:\n{output}"
    return f"The command printed:\n{output}"


def run(s: Scene) -> None:
    """Told to run a command: one call and a report, or a plain answer where no such tool is offered."""
    if s.varied and s.rng.random() < VARIED_COMMANDS:
        line, output = varied_command(s.rng)
    else:
        line, output = command(s.rng, s.held)
    named = s.shell.tool if s.shell else s.rng.choice(("exec", "bash", "shell"))
    s.user(run_form(s.rng, s.held).format(c=line, n=named))
    if not s.shell:
        s.assistant(NO_TOOL, "No tool here runs commands.")
        return
    s.assistant(
        "",
        f"The user wants a command run. I call {s.shell.tool}.",
        {"name": s.shell.tool, "arguments": {s.shell.param: line}},
    )
    shown = output or s.rng.choice(("", "(no output)"))
    s.tool(shown)
    s.output = output
    s.assistant(report(output), "The command has run. I report its output.")


def printed(s: Scene) -> None:
    if s.output is not None:
        s.turn(pick(s.rng, PRINTED), report(s.output), "The user asks for the output again.")


Skill = Callable[[Scene], None]
SMALL: tuple[tuple[Skill, float], ...] = (
    (chat, 12), (tell, 7), (ask, 12), (ask_unknown, 0.5), (update, 0.7), (arithmetic, 6), (capital, 3), (opposite, 1),
    (after, 1), (repeat, 5), (literal, 1.5), (passage, 1.2), (run, 12), (printed, 1), (beyond, 1.5),
)  # fmt: skip


def step(s: Scene, rng: Random) -> None:
    skills, weights = zip(*SMALL, strict=True)
    rng.choices(skills, weights)[0](s)


def title_words(text: str) -> str:
    return " ".join(text.rstrip(".!?").split()[:5])


def plain_request(rng: Random) -> str:
    return pick(rng, (
        f"Plan a {pick(rng, PLAIN)} trip to the {word(rng)} with {pick(rng, PLAIN)}", f"Draft a {word(rng)} list for the {pick(rng, PLAIN)}",
        f"Write a note about {word(rng)} and {word(rng)}", f"Explain how the {pick(rng, PLAIN)} {word(rng)} works", f"Compare {word(rng)} with {word(rng)} for me",
    ))  # fmt: skip
