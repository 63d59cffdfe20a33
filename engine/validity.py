"""Whether a command's values are what the door promises. Pure; knows what names and worths must be, not what is done with them.

They become keys, are sorted and written to disk on threads that serve everybody, so what can't be any of that mustn't get so far.
What is said in a prompt, and how it is to be sampled, is judged where it is used: a fault there ends its own request.
"""

from math import isfinite

from engine.api import (
    Cancel,
    ContinuationId,
    CountTokens,
    Drop,
    Generate,
    Prefetch,
    Prepare,
    Retention,
    SetRetention,
    Shutdown,
    TakeSnapshot,
)


def fault_of(command: object) -> str | None:
    """What is wrong with it, for a person; None if nothing is."""
    match command:
        case Generate() | Prepare():
            names = (command.request_id, command.tenant, command.continuation)
            return _fault_of_names(names) or _fault_of_worth(
                command.retention, command.continuation
            )
        case SetRetention():
            return next(filter(None, map(_fault_of_worth, _each(command.entries))), None)
        case Drop():
            named = () if command.checkpoints is None else _each(command.checkpoints)
            return _fault_of_names((command.continuation, *named))
        case Prefetch():
            return _fault_of_names(_each(command.continuations))
        case Cancel() | CountTokens() | TakeSnapshot():
            return _fault_of_names((command.request_id,))
        case Shutdown():
            return None
        case _:
            return f"{type(command).__name__} is no command"


def _each(value: object) -> tuple[object, ...]:
    """What a tuple holds; anything else as something that is wrong."""
    return value if isinstance(value, tuple) else (None,)


def _fault_of_names(names: tuple[object, ...]) -> str | None:
    return next((f"{name!r} is no name" for name in names if not _is_name(name)), None)


def _is_name(value: object) -> bool:
    """Text that can be written down."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _fault_of_worth(retention: object, continuation: ContinuationId | None = None) -> str | None:
    """`continuation`: whose it must be, if that is known."""
    if not isinstance(retention, Retention):
        return f"{type(retention).__name__} is no retention"
    if continuation not in (None, retention.continuation):
        return f"the retention is that of {retention.continuation!r}"
    pinned = () if retention.pinned_until is None else (retention.pinned_until,)
    for number in (retention.priority, retention.used_at, *pinned):
        if not _is_number(number):
            return f"{number!r} can't be compared with other priorities or times"
    if not isinstance(retention.expendable, tuple):
        return "expendable checkpoints are a tuple"
    return _fault_of_names((retention.continuation, *retention.expendable))


def _is_number(value: object) -> bool:
    try:
        return isinstance(value, int | float) and isfinite(value)
    except OverflowError:  # an integer that no float can hold
        return False
