"""What the loop is told, by the reader and by the disk, in the order in which it comes. Knows no answers."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from engine.api import Cancel, Drop, Prefetch, SetRetention, Shutdown, TakeSnapshot
from engine.turns import Prompted, PromptedAhead


@dataclass(frozen=True, slots=True)
class Wake:
    """The disk has done something; there may be work."""


Told = Prompted | PromptedAhead | Cancel | SetRetention | Drop | Prefetch | TakeSnapshot | Shutdown
Post = Told | Wake
Inbox = SimpleQueue[Post]


def drain(inbox: Inbox, patience_s: float | None) -> Iterable[Post]:
    """All that has come in; waits so long for the first, None for as long as it takes."""
    posts: list[Post] = []
    with suppress(Empty):
        posts.append(inbox.get(timeout=patience_s) if patience_s != 0 else inbox.get_nowait())
        while True:
            posts.append(inbox.get_nowait())
    return posts
