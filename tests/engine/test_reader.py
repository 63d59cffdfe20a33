"""The reader: what waits for a prompt that takes long to render, and what doesn't."""

import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any, cast

import pytest

from engine.api import (
    Cancel,
    Command,
    ContinuationId,
    CountTokens,
    Drop,
    Event,
    Failed,
    Finished,
    FinishReason,
    Generate,
    Message,
    Prefetch,
    Prepare,
    Prepared,
    PrepareOutcome,
    Prompt,
    RejectCode,
    Rejected,
    RequestId,
    Retention,
    SetRetention,
    Shutdown,
    TakeSnapshot,
    TenantKey,
    TokenCount,
)
from engine.reader import Reader
from engine.text.errors import PromptError
from engine.text.model import TextModel
from engine.text.render import Rendered
from engine.turns import Prompted, PromptedAhead

PATIENCE_S = 60.0
LONG, GOOD, BAD, BROKEN = (
    Prompt((Message("user", word),)) for word in ("long", "good", "bad", "broken")
)


class SlowText:
    """Renders at once, but `LONG` only when `go` is set; `begun` is set when it is reached."""

    class markup:
        call_open = None

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        self.rendered: list[Prompt] = []

    def render(self, prompt: Prompt) -> Rendered:
        self.rendered.append(prompt)
        if prompt is LONG:
            self.begun.set()
            assert self.go.wait(PATIENCE_S)
        if prompt is BAD:
            raise PromptError("a bad prompt")
        if prompt is BROKEN:
            raise ZeroDivisionError("a fault")
        return Rendered((1, 2), (0, 1), (2,))

    def open_stream(self, *_: object) -> None:
        return None

    def count(self, prompt: Prompt) -> int:
        assert prompt is not LONG
        return 2


class Desk:
    """A reader with its commands, inbox and events in the test's hands."""

    def __init__(self) -> None:
        self.text = SlowText()
        self.commands: SimpleQueue[Command | None] = SimpleQueue()
        self.inbox: SimpleQueue[Any] = SimpleQueue()
        self._events: SimpleQueue[Event] = SimpleQueue()
        text = cast(TextModel, self.text)
        Reader(self.commands.get, self._publish, text, self.inbox).start()

    def send(self, *commands: Command) -> None:
        for command in commands:
            self.commands.put(command)

    def occupy(self) -> None:
        """The prompt of request `long` is being rendered from here on."""
        self.send(generate("long", LONG))
        assert self.text.begun.wait(PATIENCE_S)

    def taken(self) -> Any:
        """The next thing for the loop; of a prompt its request's id."""
        post = self.inbox.get(timeout=PATIENCE_S)
        if isinstance(post, PromptedAhead):
            return post.prepare.request_id
        return post.generate.request_id if isinstance(post, Prompted) else post

    def event(self) -> Any:
        return self._events.get(timeout=PATIENCE_S)

    def _publish(self, events: Any) -> None:
        for event in events:
            self._events.put(event)


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.text.go.set()
    made.commands.put(None)


def generate(name: str, prompt: Prompt = GOOD) -> Generate:
    chat = ContinuationId("c")
    return Generate(RequestId(name), TenantKey("t"), chat, prompt, Retention(chat, 1, 1.0))


def prepare(name: str, prompt: Prompt = GOOD, continuation: str = "p") -> Prepare:
    chat = ContinuationId(continuation)
    return Prepare(RequestId(name), TenantKey("t"), chat, prompt, Retention(chat, 1, 1.0))


def cancel(name: str) -> Cancel:
    return Cancel(RequestId(name))


def test_a_cancel_does_not_wait_for_anothers_prompt(desk: Desk) -> None:
    desk.send(generate("runs"))
    assert desk.taken() == "runs"
    desk.occupy()
    desk.send(cancel("runs"))
    assert desk.taken() == cancel("runs")


def test_a_request_is_cancelled_while_its_prompt_is_rendered(desk: Desk) -> None:
    desk.occupy()
    desk.send(cancel("long"))
    ended = desk.event()
    assert isinstance(ended, Finished)
    assert (ended.request_id, ended.reason, ended.output_tokens, ended.ledger) == (
        "long", FinishReason.CANCELLED, 0, None,
    )  # fmt: skip
    desk.text.go.set()
    desk.send(generate("next"))
    assert desk.taken() == "next"


def test_what_is_cancelled_before_its_turn_is_never_rendered(desk: Desk) -> None:
    desk.occupy()
    desk.send(generate("second", BAD), generate("third"), cancel("second"))
    assert desk.event().request_id == "second"
    desk.text.go.set()
    assert [desk.taken(), desk.taken()] == ["long", "third"]
    assert desk.text.rendered == [LONG, GOOD]


def test_an_id_may_be_used_again_after_its_cancel(desk: Desk) -> None:
    desk.occupy()
    desk.send(cancel("long"), generate("long"), generate("last"))
    assert isinstance(desk.event(), Finished)
    desk.text.go.set()
    assert [desk.taken(), desk.taken()] == ["long", "last"]
    assert desk.text.rendered == [LONG, GOOD, GOOD]


def test_an_id_that_is_pending_is_refused(desk: Desk) -> None:
    desk.occupy()
    desk.send(generate("long"))
    refused = desk.event()
    assert isinstance(refused, Rejected)
    assert refused.code is RejectCode.INVALID_PROMPT


def test_what_changes_memory_keeps_its_place_among_prompts(desk: Desk) -> None:
    drop, worth = Drop(ContinuationId("c"), "asked"), SetRetention(())
    snapshot = TakeSnapshot(RequestId("s"))
    desk.occupy()
    desk.send(drop, generate("second"), worth, snapshot)
    desk.text.go.set()
    assert [desk.taken() for _ in range(5)] == ["long", drop, "second", worth, snapshot]


def test_counting_waits_for_no_prompt(desk: Desk) -> None:
    desk.occupy()
    desk.send(CountTokens(RequestId("n"), GOOD))
    assert desk.event() == TokenCount(RequestId("n"), 2)


def test_a_prompt_that_cannot_be_rendered_ends_its_own_request_only(desk: Desk) -> None:
    desk.send(generate("bad", BAD), generate("broken", BROKEN), generate("good"))
    refused, failed = desk.event(), desk.event()
    assert isinstance(refused, Rejected)
    assert (refused.request_id, refused.code) == ("bad", RejectCode.INVALID_PROMPT)
    assert failed == Failed(RequestId("broken"), "rendering failed: a fault")
    assert desk.taken() == "good"


@pytest.mark.parametrize("last", [Shutdown(), None])
def test_the_end_tells_those_whose_prompts_are_not_rendered(
    desk: Desk, last: Shutdown | None
) -> None:
    desk.occupy()
    desk.send(generate("second"))
    desk.commands.put(last)
    ends = [desk.event(), desk.event()]
    assert [(end.request_id, end.code) for end in ends] == [
        ("long", RejectCode.SHUTTING_DOWN),
        ("second", RejectCode.SHUTTING_DOWN),
    ]
    assert desk.taken() == Shutdown()
    desk.text.go.set()
    assert {desk.taken(), desk.taken()} == {Shutdown()}


class TestPreparing:
    def test_it_ends_before_the_opener(self, desk: Desk) -> None:
        desk.send(prepare("ahead"))
        post = desk.inbox.get(timeout=PATIENCE_S)
        assert isinstance(post, PromptedAhead)
        assert (post.token_ids, post.borders) == ((1,), (0, 1))

    def test_it_is_rendered_when_nothing_else_waits(self, desk: Desk) -> None:
        hint = Prefetch((ContinuationId("c"),))
        desk.occupy()
        desk.send(prepare("ahead"), generate("second"), hint, generate("third"))
        desk.send(CountTokens(RequestId("n"), GOOD))
        assert isinstance(desk.event(), TokenCount)
        desk.text.go.set()
        assert [desk.taken() for _ in range(5)] == ["long", "second", hint, "third", "ahead"]

    @pytest.mark.parametrize(
        ("by", "outcome"),
        [
            (generate("by"), "taken_up"),
            (prepare("by", continuation="c"), "replaced"),
            (Drop(ContinuationId("c"), "asked"), "cancelled"),
            (cancel("ahead"), "cancelled"),
        ],
    )
    def test_what_ends_it_ends_it_here_too(self, desk: Desk, by: Command, outcome: str) -> None:
        desk.occupy()
        desk.send(prepare("ahead", BAD, continuation="c"), by)
        assert desk.event() == Prepared(RequestId("ahead"), PrepareOutcome(outcome))
        desk.text.go.set()
        desk.send(generate("last"))
        if not isinstance(by, Cancel):
            assert desk.taken() == "long"
        assert BAD not in desk.text.rendered

    def test_others_do_not_end_it(self, desk: Desk) -> None:
        some = Drop(ContinuationId("p"), "asked", ())
        desk.occupy()
        desk.send(prepare("ahead"), generate("other"), prepare("third", continuation="q"), some)
        desk.text.go.set()
        assert [desk.taken() for _ in range(5)] == ["long", "other", some, "ahead", "third"]

    def test_a_prompt_that_cannot_be_rendered(self, desk: Desk) -> None:
        desk.send(prepare("bad", BAD), prepare("broken", BROKEN, continuation="q"))
        refused, failed = desk.event(), desk.event()
        assert refused == Prepared(
            RequestId("bad"), PrepareOutcome.REJECTED, message="a bad prompt"
        )
        assert failed == Prepared(
            RequestId("broken"), PrepareOutcome.FAILED, message="rendering failed: a fault"
        )

    def test_the_end_tells_those_that_wait(self, desk: Desk) -> None:
        desk.occupy()
        desk.send(prepare("ahead"))
        desk.commands.put(None)
        ends = {end.request_id: end for end in (desk.event(), desk.event())}
        assert isinstance(ends[RequestId("ahead")], Prepared)
        assert ends[RequestId("ahead")].outcome is PrepareOutcome.REJECTED
