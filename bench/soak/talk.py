"""Conversations as clients have them: they go on, fork, are edited, answered anew. Knows messages and chance; no engine."""

from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from bench.prompts import TEXT
from engine.api import Anchor, AnchorKind, LedgerEntry, Message, Prompt

TENANTS = ("north", "south")
HEADS = 3
LONGEST_MESSAGES = 8
LIVELY = 12
"""The latest conversations, which go on; older ones are left where they are."""
SAYINGS = (
    "Hello!",
    "My cat is called Miso.",
    "What is my cat called?",
    "Say the word apple.",
    "What is 2 + 2?",
    "Thanks!",
    "Who are you?",
)


@dataclass(slots=True)
class Conversation:
    """`name` is its continuation's. The last message is the user's while an answer is awaited. `busy`: requests in flight."""

    name: str
    tenant: str
    thinking: bool
    messages: list[Message] = field(default_factory=list)
    busy: int = 0

    def prompt(self) -> Prompt:
        return Prompt(tuple(self.messages), thinking=self.thinking)

    def anchors(self) -> tuple[Anchor, ...]:
        """Those the proxy asks for by default."""
        count = len(self.messages)
        return (
            Anchor(AnchorKind.HEAD, 1),
            Anchor(AnchorKind.REWIND, count, back=32),
            Anchor(AnchorKind.PROMPT_END, count),
        )

    def answered(self, prompt: Prompt, ledger: LedgerEntry) -> None:
        """Takes the answer to `prompt`, unless the conversation went another way meanwhile."""
        if tuple(self.messages) == prompt.messages:
            self.messages.append(Message("assistant", ledger=ledger))


class Move(NamedTuple):
    """`conversation` wants an answer now, because of what was done to it."""

    kind: str
    conversation: Conversation


MOVES = ("turns", "forks", "edits", "answers anew", "compactions", "requests beside another")


class Talk:
    """All conversations. Each call of `move` makes one random move."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._words = TEXT.split()
        self._made = 0
        self._heads = [self._text(120 + 80 * number) for number in range(HEADS)]
        self.all: list[Conversation] = []

    def move(self) -> Move:
        if len(self.all) < 4 or self._random.random() < 0.05:
            return Move("conversations begun", self._new())
        conversation = self._random.choice(self.all[-LIVELY:])
        if conversation.busy:
            return self._move_beside(conversation)
        if len(conversation.messages) > LONGEST_MESSAGES:
            return Move("compactions", self._compact(conversation))
        kind = self._random.choice(("turns", "turns", "turns", "forks", "edits", "answers anew"))
        if conversation.messages[-1].role == "user" and kind == "answers anew":
            kind = "turns"
        makers = {
            "turns": self._go_on,
            "forks": self._fork,
            "edits": self._edit,
            "answers anew": self._again,
        }
        return Move(kind, makers[kind](conversation))

    def _move_beside(self, conversation: Conversation) -> Move:
        """While it waits for an answer: it forks, or is asked something else at once."""
        if self._random.random() < 0.7:
            return Move("forks", self._fork(conversation))
        return Move("requests beside another", self._edit(conversation))

    def forget(self) -> Conversation | None:
        """Takes an idle conversation out of the talk."""
        idle = [each for each in self.all if not each.busy]
        if len(idle) < 6:
            return None
        conversation = self._random.choice(idle)
        self.all.remove(conversation)
        return conversation

    def _new(self) -> Conversation:
        self._made += 1
        tenant = self._random.choice(TENANTS)
        made = Conversation(f"{tenant}/{self._made}", tenant, self._random.random() < 0.5)
        made.messages.append(Message("system", self._random.choice(self._heads)))
        made.messages.append(self._said())
        self.all.append(made)
        return made

    def _go_on(self, conversation: Conversation) -> Conversation:
        """The next message of the user, unless the last one was never answered: then that once more."""
        if conversation.messages[-1].role == "assistant":
            conversation.messages.append(self._said())
        return conversation

    def _fork(self, conversation: Conversation) -> Conversation:
        """Another conversation that begins like this one."""
        copy = self._new()
        copy.tenant, copy.thinking = conversation.tenant, conversation.thinking
        copy.name = f"{copy.tenant}/{self._made}"
        copy.messages = [*conversation.messages[: self._user_message(conversation)], self._said()]
        return copy

    def _edit(self, conversation: Conversation) -> Conversation:
        """One of the user's messages becomes another, and what followed is gone."""
        place = self._user_message(conversation)
        conversation.messages[place:] = [self._said()]
        return conversation

    def _again(self, conversation: Conversation) -> Conversation:
        """The last answer shall be given once more."""
        conversation.messages.pop()
        return conversation

    def _compact(self, conversation: Conversation) -> Conversation:
        conversation.messages[1:] = [Message("user", "So far: " + self._text(40))]
        return conversation

    def _user_message(self, conversation: Conversation) -> int:
        places = [at for at, each in enumerate(conversation.messages) if each.role == "user"]
        return self._random.choice(places)

    def _said(self) -> Message:
        if self._random.random() < 0.4:
            return Message("user", self._random.choice(SAYINGS))
        return Message("user", self._text(self._random.choice((3, 10, 30, 100, 200, 500))))

    def _text(self, words: int) -> str:
        return " ".join(self._random.choices(self._words, k=words))
