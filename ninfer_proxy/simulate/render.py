"""A comparison as a table for a person. Knows words and columns, no policy."""

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ninfer_proxy.simulate.comparison import Comparison
from ninfer_proxy.wording import counted


def comparison_table(comparison: Comparison) -> RenderableType:
    """One row a policy, in the order they were asked for."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("POLICY", "WHAT IT IS"):
        table.add_column(name)
    for name in ("PREFILLED", "SHARE", "× OPTIMUM", "TIME LOST", "EVICTIONS"):
        table.add_column(name, justify="right")
    for result in comparison.results:
        table.add_row(
            result.policy,
            result.about,
            f"{result.prefilled_tokens:,}",
            f"{result.prefilled_share:.2%}",
            f"{comparison.against_optimum(result):.3f}",
            _duration(comparison.time_lost_s(result)),
            f"{result.evictions:,}",
        )
    return Group(Text(_headline(comparison)), Text(), table)


def _headline(comparison: Comparison) -> str:
    conversations = len({request.conversation for request in comparison.requests})
    budget = comparison.budget
    if budget.slots is not None:
        room = counted(budget.slots, "slot")
    else:
        room = counted(budget.bytes or 0, "byte")
    return (
        f"{counted(len(comparison.requests), 'request')} of {counted(conversations, 'conversation')}, "
        f"{counted(comparison.least.prompt_tokens, 'prompt token')}, {room}"
    )


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
