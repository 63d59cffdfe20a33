"""Turns commands into what the loop takes, beside the running steps. Knows prompts and their order; no socket, no steps.

reader thread    takes commands; passes a Cancel on at once, the others to
prompts thread     Generate → tokens, and what must keep its place among those    → inbox
                   Prepare → tokens, when nothing else waits there                → inbox
counts thread      CountTokens                                                    → TokenCount
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

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
    Prefetch,
    Prepare,
    Prepared,
    PrepareOutcome,
    RejectCode,
    Rejected,
    RequestId,
    SetRetention,
    Shutdown,
    TakeSnapshot,
    TokenCount,
)
from engine.inbox import Inbox
from engine.planner.admission import Refusal
from engine.text.errors import PromptError
from engine.text.model import TextModel
from engine.turns import Prompted, PromptedAhead, refused, runs_already
from engine.validity import fault_of

log = logging.getLogger(__name__)

Rendered = Generate | Prepare
Prompts = Prompted | PromptedAhead
InOrder = Rendered | SetRetention | Drop | Prefetch | TakeSnapshot


class Reader:
    """`receive` gives the next command, None at the end; `publish` is called from several threads.

    A request is pending from its arrival until its prompt is in the inbox. A Cancel in that time ends it at once, and
    what is still made of its prompt is thrown away; a Prepare is ended so by whatever would end it later on.
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
        self._pending: dict[RequestId, Rendered] = {}
        self._lock = threading.Lock()

    def start(self) -> None:
        """Its threads end with the commands."""
        for work in (self._read, self._render_prompts, self._count_prompts):
            threading.Thread(
                target=self._guard, args=(work,), name=work.__name__, daemon=True
            ).start()

    def _guard(self, work: Callable[[], None]) -> None:
        """The loop is told to end when the commands do, and when a thread breaks: nobody would be answered any more. What broke is logged
        before anybody hears of the end.
        """
        try:
            work()
        except Exception:
            log.exception("the reader stops")
        finally:
            self._end()
            self._inbox.put(Shutdown())

    def _read(self) -> None:
        """Until the peer closes or asks for the end."""
        while (command := self._receive()) is not None and not isinstance(command, Shutdown):
            self._take(command)

    def _end(self) -> None:
        """Tells the pending, and the other threads."""
        with self._lock:
            pending, self._pending = self._pending, {}
        refusal = Refusal(RejectCode.SHUTTING_DOWN, "the engine is shutting down")
        self._publish([refused(request, refusal) for request in pending.values()])
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
                self._end_prepare(command.continuation, PrepareOutcome.TAKEN_UP)
                self._accept(command)
            case Prepare():
                self._end_prepare(command.continuation, PrepareOutcome.REPLACED)
                self._accept(command)
            case Drop():
                if command.checkpoints is None:
                    self._end_prepare(command.continuation, PrepareOutcome.CANCELLED)
                self._ordered.put(command)
            case SetRetention() | Prefetch() | TakeSnapshot():
                self._ordered.put(command)
            case Shutdown():
                raise AssertionError("ends the reading")

    def _refuse(self, command: Command, fault: str) -> None:
        """Nothing is done with it, and others don't notice."""
        log.error("a command can't be acted on: %s", fault)
        if isinstance(command, Rendered):
            self._publish([refused(command, Refusal(RejectCode.INVALID_PROMPT, fault))])

    def _accept(self, request: Rendered) -> None:
        with self._lock:
            twice = self._pending.setdefault(request.request_id, request) is not request
        if twice:
            self._publish([refused(request, runs_already(request.request_id))])
        else:
            self._ordered.put(request)

    def _end_prepare(self, continuation: ContinuationId, outcome: PrepareOutcome) -> None:
        """Ends the pending Prepare of the continuation, if there's one."""
        with self._lock:
            ended = [
                request_id
                for request_id, each in self._pending.items()
                if isinstance(each, Prepare) and each.continuation == continuation
            ]
            for request_id in ended:
                del self._pending[request_id]
        self._publish([Prepared(request_id, outcome) for request_id in ended])

    def _cancel(self, cancel: Cancel) -> None:
        with self._lock:
            request = self._pending.pop(cancel.request_id, None)
        if request is None:
            self._inbox.put(cancel)
        else:
            self._publish([cancelled(request)])

    def _render_prompts(self) -> None:
        later: deque[Prepare] = deque()
        while (command := self._next(later)) is not None:
            if not isinstance(command, Generate | Prepare):
                self._inbox.put(command)
            elif self._is_pending(command):
                self._hand_on(command, self._render(command))

    def _next(self, later: deque[Prepare]) -> InOrder | None:
        """What comes next in order; what is to be prepared, put off in `later`, only when nothing else is there."""
        while True:
            try:
                command = self._ordered.get(block=not later)
            except Empty:
                return later.popleft()
            if not isinstance(command, Prepare):
                return command
            later.append(command)

    def _is_pending(self, request: Rendered) -> bool:
        """Told by the request itself: its id may have been used again since it was cancelled."""
        return self._pending.get(request.request_id) is request

    def _hand_on(self, request: Rendered, made: Prompts | Rejected | Prepared | Failed) -> None:
        with self._lock:
            if not self._is_pending(request):
                return
            del self._pending[request.request_id]
            if isinstance(made, Prompted | PromptedAhead):
                # Under the lock, so that a Cancel that comes now is behind it in the inbox.
                self._inbox.put(made)
                return
        self._publish([made])

    def _render(self, request: Rendered) -> Prompts | Rejected | Prepared | Failed:
        try:
            return self._prompted(request)
        except PromptError as error:
            return refused(request, Refusal(RejectCode.INVALID_PROMPT, str(error)))
        except Exception as error:
            log.exception("request %s: its prompt can't be rendered", request.request_id)
            return broken(request, f"rendering failed: {error}")

    def _prompted(self, request: Rendered) -> Prompts:
        rendered = self._text.render(request.prompt)
        if isinstance(request, Prepare):
            borders = rendered.borders
            return PromptedAhead(request, rendered.token_ids[: borders[-1]], borders)
        calls = self._text.markup.call_open
        return Prompted(
            generate=request,
            token_ids=rendered.token_ids,
            borders=rendered.borders,
            opener=rendered.opener,
            output=self._text.open_stream(request.prompt, request.stop, request.allow_tools),
            banned=() if request.allow_tools or calls is None else (calls,),
            dictated=self._text.dictated(request.dictation) if request.dictation else (),
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


def cancelled(request: Rendered) -> Finished | Prepared:
    """The end of a request before the loop knew of it."""
    if isinstance(request, Prepare):
        return Prepared(request.request_id, PrepareOutcome.CANCELLED)
    return Finished(
        request_id=request.request_id,
        reason=FinishReason.CANCELLED,
        output_tokens=0,
        reasoning_tokens=0,
        reused_tokens=0,
        ledger=None,
        checkpoints=(),
    )


def broken(request: Rendered, message: str) -> Failed | Prepared:
    if isinstance(request, Prepare):
        return Prepared(request.request_id, PrepareOutcome.FAILED, message=message)
    return Failed(request.request_id, message)
