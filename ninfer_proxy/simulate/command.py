"""The command `simulate`: options and texts in, a comparison out. Knows no file and no terminal."""

from collections.abc import Sequence

from ninfer_proxy.config_values import size
from ninfer_proxy.errors import CommandRefused
from ninfer_proxy.simulate.budget import Budget
from ninfer_proxy.simulate.comparison import POLICIES, Comparison, compare
from ninfer_proxy.simulate.cost import Cost
from ninfer_proxy.simulate.workload import workload

DEFAULT_SLOTS = 12


def simulate(
    files: Sequence[tuple[str, str]],
    *,
    slots: int | None,
    room: str | None,
    policies: Sequence[str],
    spread: float,
    cost: Cost,
) -> Comparison:
    """Compares the policies (all where none is named) over `files`, names and texts. `room` is a size such as "40 GiB".

    Errors: CommandRefused.
    """
    unknown = [name for name in policies if name not in POLICIES]
    if unknown:
        raise CommandRefused(f"--policy {unknown[0]} is none of {', '.join(POLICIES)}.")
    requests = workload(files, spread)
    if not requests:
        raise CommandRefused("There is no request in these files.")
    return compare(requests, _budget(slots, room), cost, tuple(policies) or tuple(POLICIES))


def _budget(slots: int | None, room: str | None) -> Budget:
    if slots is not None and room is not None:
        raise CommandRefused("--slots and --bytes exclude each other: a budget is one of the two.")
    if room is None:
        return Budget(slots=DEFAULT_SLOTS if slots is None else slots)
    try:
        return Budget(bytes=size(int(room) if room.isdigit() else room))
    except ValueError as error:
        raise CommandRefused(f"--bytes {room!r} is not {error}.") from None
