"""Turns commands into what the loop takes, beside the running steps. Knows prompts and their order; no socket, no steps.

reader thread    takes commands; passes a Cancel on at once, the others to
prompts thread     Generate → tokens, and what must keep its place among those    → inbox
counts thread      CountTokens                                                    → TokenCount
"""

import logging
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from engine.api import (
    Cancel,
    Command,
    CountTokens,
    Drop,
    Event,
    Failed,
    Finished,
    FinishReason,
    Generate,
    RejectCode,
    Rejected,
    RequestId,
    SetRetention,
    Shutdown,
    TakeSnapshot,
    TokenCount,
)
from engine.loop import Inbox
from engine.planner.admission import Refusal
from engine.text.errors import PromptError
from engine.text.model import TextModel
from engine.turns import Prompted, rejected, runs_already
from engine.validity import fault_of

log = logging.getLogger(__name__)

InOrder = Generate | SetRetention | Drop | TakeSnapshot


class Reader:
    """`receive` gives the next command, None at the end; `publish` is called from several threads.

    A request is pending from its arrival until its prompt is in the inbox. A Cancel in that time ends it at once, and
    what is still made of its prompt is thrown away.
    """

    def __init__(
        self,
        receive: Callable[[], Command | None],
        publish: Callable[[Sequence[Event]], None],
        text: TextModel,
        inbox: Inbox,
    ) -> None:
        self._receive = receive
        self._publish = publish
        self._text = text
        self._inbox = inbox
        self._ordered: SimpleQueue[InOrder | None] = SimpleQueue()
        self._counts: SimpleQueue[CountTokens | None] = SimpleQueue()
        self._pending: dict[RequestId, Generate] = {}
        self._lock = threading.Lock()

    def start(self) -> None:
        """Its threads end with the commands."""
        for work in (self._read, self._render_prompts, self._count_prompts):
            threading.Thread(
                target=self._guard, args=(work,), name=work.__name__, daemon=True
            ).start()

    def _guard(self, work: Callable[[], None]) -> None:
        """The loop is told to end when the commands do, and when a thread breaks: nobody would be answered any more."""
        try:
            work()
        except Exception:
            log.exception("the reader stops")
        finally:
            self._inbox.put(Shutdown())

    def _read(self) -> None:
        """Until the peer closes or asks for the end."""
        try:
            while (command := self._receive()) is not None and not isinstance(command, Shutdown):
                self._take(command)
        finally:
            self._end()

    def _end(self) -> None:
        """Tells the pending, and the other threads."""
        with self._lock:
            pending, self._pending = self._pending, {}
        refusal = Refusal(RejectCode.SHUTTING_DOWN, "the engine is shutting down")
        self._publish([rejected(generate, refusal) for generate in pending.values()])
        self._ordered.put(None)
        self._counts.put(None)

    def _take(self, command: Command) -> None:
        fault = fault_of(command)
        if fault is not None:
            self._refuse(command, fault)
            return
        match command:
            case Cancel():
                self._cancel(command)
            case CountTokens():
                self._counts.put(command)
            case Generate():
                self._accept(command)
            case SetRetention() | Drop() | TakeSnapshot():
                self._ordered.put(command)
            case Shutdown():
                raise AssertionError("ends the reading")

    def _refuse(self, command: Command, fault: str) -> None:
        """Nothing is done with it, and others don't notice."""
        log.error("a command can't be acted on: %s", fault)
        if isinstance(command, Generate):
            self._publish([rejected(command, Refusal(RejectCode.INVALID_PROMPT, fault))])

    def _accept(self, generate: Generate) -> None:
        with self._lock:
            twice = self._pending.setdefault(generate.request_id, generate) is not generate
        if twice:
            self._publish([runs_already(generate)])
        else:
            self._ordered.put(generate)

    def _cancel(self, cancel: Cancel) -> None:
        with self._lock:
            generate = self._pending.pop(cancel.request_id, None)
        if generate is None:
            self._inbox.put(cancel)
        else:
            self._publish([cancelled(generate)])

    def _render_prompts(self) -> None:
        while (command := self._ordered.get()) is not None:
            if not isinstance(command, Generate):
                self._inbox.put(command)
            elif self._is_pending(command):
                self._hand_on(command, self._render(command))

    def _is_pending(self, generate: Generate) -> bool:
        """Told by the request itself: its id may have been used again since it was cancelled."""
        return self._pending.get(generate.request_id) is generate

    def _hand_on(self, generate: Generate, made: Prompted | Rejected | Failed) -> None:
        with self._lock:
            if not self._is_pending(generate):
                return
            del self._pending[generate.request_id]
            if isinstance(made, Prompted):
                # Under the lock, so that a Cancel that comes now is behind it in the inbox.
                self._inbox.put(made)
                return
        self._publish([made])

    def _render(self, generate: Generate) -> Prompted | Rejected | Failed:
        try:
            rendered = self._text.render(generate.prompt)
            output = self._text.open_stream(generate.prompt, generate.stop, generate.allow_tools)
        except PromptError as error:
            return rejected(generate, Refusal(RejectCode.INVALID_PROMPT, str(error)))
        except Exception as error:
            log.exception("request %s: its prompt can't be rendered", generate.request_id)
            return Failed(generate.request_id, f"rendering failed: {error}")
        calls = self._text.markup.call_open
        return Prompted(
            generate=generate,
            token_ids=rendered.token_ids,
            borders=rendered.borders,
            opener=rendered.opener,
            output=output,
            banned=() if generate.allow_tools or calls is None else (calls,),
        )

    def _count_prompts(self) -> None:
        while (command := self._counts.get()) is not None:
            self._publish([self._count(command)])

    def _count(self, command: CountTokens) -> TokenCount:
        try:
            return TokenCount(command.request_id, self._text.count(command.prompt))
        except PromptError as error:
            return TokenCount(command.request_id, 0, str(error))
        except Exception as error:
            log.exception("a prompt can't be counted")
            return TokenCount(command.request_id, 0, f"rendering failed: {error}")


def cancelled(generate: Generate) -> Finished:
    """The end of a request before the loop knew of it."""
    return Finished(
        request_id=generate.request_id,
        reason=FinishReason.CANCELLED,
        output_tokens=0,
        reasoning_tokens=0,
        reused_tokens=0,
        ledger=None,
        checkpoints=(),
    )
