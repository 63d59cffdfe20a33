"""The admin API's JSON as tables for a terminal. Pure: the time is given, nothing is printed."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ninfer_proxy.wording import counted

View = Mapping[str, Any]

MINUTE, HOUR, DAY = 60, 3600, 86_400
CLASS_STYLES = {"running": "green", "waiting_for_tool": "cyan", "side": "dim", "idle": "dim"}
REASON_STYLES = {"cache_hit": "green", "evicted": "red", "checkpoint_missing": "red"}


def slots_table(payload: View, now: float) -> RenderableType:
    """One row a slot."""
    slots = payload["slots"]
    if not slots:
        return Text("No slot is in use: no conversation has been had yet, or all were evicted.")
    table = _table()
    for name, justify in SLOT_COLUMNS:
        # Numbers stay whole; long names fold where the terminal is narrow, so that nothing is cut.
        table.add_column(name, justify=justify, overflow="fold", no_wrap=justify == "right")
    for slot in slots:
        _add(table, *_slot_row(slot, now))
    return table


SLOT_COLUMNS: Sequence[tuple[str, Any]] = (
    ("SLOT", "right"),
    ("CONVERSATION", "left"),
    ("CLIENT", "left"),
    ("CLASS", "left"),
    ("PINNED", "right"),
    ("TOKENS", "right"),
    ("CHECKPOINTS", "left"),
    ("BYTES", "right"),
    ("USED", "right"),
    ("HITS", "right"),
    ("PREFILLED", "right"),
    ("REUSED", "right"),
    ("LAST REASON", "left"),
)


def _slot_row(slot: View, now: float) -> list[RenderableType]:
    return [
        str(slot["slot"]),
        slot["conversation"],
        slot["client"] or "?",
        _styled(slot["class"] or "-", CLASS_STYLES),
        _until(slot["pinned_until"], now),
        tokens(slot["tokens"]),
        _tiers(slot["checkpoints"]),
        size(slot["bytes"]),
        _ago(slot["last_used_at"], now),
        str(slot["hits"]),
        tokens(slot["tokens_prefilled"]),
        tokens(slot["tokens_reused"]),
        _styled(slot["last_reason"] or "-", REASON_STYLES),
    ]


def show_view(payload: View, now: float) -> RenderableType:
    """A conversation: what it is, its checkpoints, its latest responses, what it lost."""
    facts = _facts(
        ("conversation", payload["conversation"]),
        ("slot", "none" if payload["slot"] is None else f"{payload['slot']} ({payload['class']})"),
        ("client", f"{payload['client'] or '?'} ({payload['family'] or 'unknown family'})"),
        ("scope", payload["scope"] or "-"),
        ("side request", payload["side_kind"]),
        ("parent", payload["parent"]),
        ("pinned", _until(payload["pinned_until"], now)),
        ("last used", f"{_ago(payload['last_used_at'], now)} ago"),
        ("items", f"{payload['line_items']} in the line, {payload['items']} stored"),
        ("prefilled", counted(payload["tokens_prefilled"], "token")),
        (
            "reused",
            f"{counted(payload['tokens_reused'], 'token')} in {counted(payload['hits'], 'hit')}",
        ),
        ("last reason", payload["last_reason"] or "-"),
    )
    parts: list[RenderableType] = [facts]
    if payload["checkpoints"]:
        parts += [Text("\nCheckpoints", style="bold"), _checkpoints(payload["checkpoints"])]
    if payload["responses"]:
        parts += [Text("\nResponses", style="bold"), _responses(payload["responses"], now)]
    if payload["drops"]:
        parts += [Text("\nDropped", style="bold"), _drops(payload["drops"], now)]
    return Group(*parts)


def explain_view(payload: View, now: float) -> RenderableType:
    """Why a response's prompt was, or was not, computed again."""
    source = "nothing"
    if payload["source_tier"]:
        source = f"a {payload['source_kind']} checkpoint on {payload['source_tier']}"
    return _facts(
        ("response", payload["response"]),
        ("reason", _styled(payload["reason"], REASON_STYLES)),
        ("", payload["detail"]),
        ("conversation", f"{payload['conversation']} in slot {payload['slot']}"),
        ("recognised as", payload["match"]),
        ("by", ", ".join(payload["evidence"]) or "-"),
        ("first difference", payload["differs_at"] or payload["difference"]),
        ("", payload["difference"] if payload["differs_at"] else None),
        *(("stabilised" if i == 0 else "", each) for i, each in enumerate(payload["stabilised"])),
        ("saved", _saved(payload)),
        ("resumed from", source),
        (
            "reused",
            f"{payload['reused_tokens']:,} of {counted(payload['prompt_tokens'], 'prompt token')}",
        ),
        ("prefilled", counted(payload["prefilled_tokens"], "token")),
        ("expected", _expected(payload)),
        ("generated", counted(payload["output_tokens"], "token")),
        (
            "model",
            payload["model"] + (f", effort {payload['effort']}" if payload["effort"] else ""),
        ),
        ("status", payload["status"] + (", deleted since" if payload["deleted"] else "")),
        ("when", f"{_ago(payload['created_at'], now)} ago"),
        ("previous", payload["previous_response"]),
    )


def _saved(payload: View) -> str | None:
    """What a steady head spared, where something was changed in it."""
    if payload["saved_tokens"] is None:
        return None
    saved = counted(payload["saved_tokens"], "token")
    return f"about {saved}: with the head as it was sent, they would have been computed"


def _expected(payload: View) -> str | None:
    """What planning believed before the engine answered, where it was wrong."""
    expected = payload["plan"].get("expected_tokens")
    if not expected or expected == payload["reused_tokens"]:
        return None
    return f"{counted(expected, 'token')} to be reused, when it was planned"


def top_frame(status: View, slots: View, now: float) -> RenderableType:
    """The engine, what runs, what memory holds, and the slots."""
    engine = status["engine"]
    head = f"engine {engine['state']}"
    if engine["detail"]:
        head += f" ({engine['detail']})"
    if engine["model"]:
        head += f"   model {engine['model']} on {engine['device']}"
    if engine["restarts"]:
        head += f"   restarts {engine['restarts']}"
    lines = [Text(head, style="bold")]
    for tier in status["tiers"] or ():
        lines.append(Text(_tier_line(tier)))
    if status["lanes"] is not None:
        limit = engine["max_lanes"] or "?"
        running = f"running {len(status['lanes'])} of {limit}   waiting {status['waiting']}"
        if status["restoring"]:
            running += f" ({status['restoring']} for state from disk)"
        lines.append(Text(running))
    lanes: list[RenderableType] = [_lanes(status["lanes"]), Text()] if status["lanes"] else [Text()]
    return Group(*lines, *lanes, slots_table(slots, now))


def _tier_line(tier: View) -> str:
    used, total = tier["used_bytes"], tier["total_bytes"]
    share = used / total if total else 0.0
    bar = "█" * round(share * 20)
    line = f"{tier['tier']:<7}{bar:·<20} {size(used)} of {size(total)} ({share:.0%})"
    return f"{line}   {tier['note']}" if tier["note"] else line


def _lanes(lanes: Iterable[View]) -> Table:
    table = _table()
    for name in ("LANE", "CONVERSATION", "PROMPT", "COMPUTED", "OUTPUT"):
        table.add_column(name, justify="left" if name == "CONVERSATION" else "right")
    for lane in lanes:
        _add(
            table,
            str(lane["lane"]),
            lane["conversation"] or "new",
            tokens(lane["prompt_tokens"]),
            tokens(lane["computed_tokens"]),
            tokens(lane["output_tokens"]),
        )
    return table


def _checkpoints(checkpoints: Iterable[View]) -> Table:
    table = _table()
    for name in ("KIND", "POSITION", "TIER", "BYTES"):
        table.add_column(name, justify="right" if name in ("POSITION", "BYTES") else "left")
    for each in sorted(checkpoints, key=lambda each: each["position"]):
        _add(table, each["kind"], f"{each['position']:,}", each["tier"], size(each["bytes"]))
    return table


def _responses(responses: Iterable[View], now: float) -> Table:
    table = _table()
    for name in ("RESPONSE", "AGO", "REASON", "PROMPT", "REUSED", "PREFILLED", "OUTPUT"):
        table.add_column(name, justify="left" if name in ("RESPONSE", "REASON") else "right")
    for each in responses:
        _add(
            table,
            each["response"],
            _ago(each["created_at"], now),
            _styled(each["reason"], REASON_STYLES),
            tokens(each["prompt_tokens"]),
            tokens(each["reused_tokens"]),
            tokens(each["prefilled_tokens"]),
            tokens(each["output_tokens"]),
        )
    return table


def _drops(drops: Iterable[View], now: float) -> Table:
    table = _table()
    for name in ("AGO", "REASON", "TOKENS", "BYTES", "CHECKPOINTS"):
        table.add_column(name, justify="left" if name in ("REASON", "CHECKPOINTS") else "right")
    for each in drops:
        _add(
            table,
            _ago(each["at"], now),
            each["reason"],
            tokens(each["tokens"]),
            size(each["bytes"]),
            _kinds(each["checkpoints"]),
        )
    return table


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))


def _add(table: Table, *cells: RenderableType) -> None:
    """A row whose strings are shown as they are: brackets in names and texts are no markup."""
    table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))


def _facts(*rows: tuple[str, RenderableType | None]) -> Table:
    """Names and values; rows without a value are left out."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        if value is not None:
            _add(table, name, value)
    return table


def _styled(word: str, styles: Mapping[str, str]) -> Text:
    return Text(word, style=styles.get(word, ""))


def _kinds(checkpoints: Iterable[View]) -> str:
    counted = Counter(str(each["kind"]) for each in checkpoints)
    return ", ".join(kind if n == 1 else f"{n} {kind}" for kind, n in counted.items())


def _tiers(checkpoints: Iterable[View]) -> str:
    counted = Counter(str(each["tier"]) for each in checkpoints)
    return ", ".join(f"{n} {tier}" for tier, n in sorted(counted.items())) or "-"


def tokens(count: int) -> str:
    return f"{count:,}" if count < 100_000 else f"{count / 1000:,.0f}k"


def size(count: int) -> str:
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def duration(seconds: float) -> str:
    """The largest unit that fits, rounded down."""
    for unit, length in (("d", DAY), ("h", HOUR), ("m", MINUTE)):
        if seconds >= length:
            return f"{int(seconds // length)}{unit}"
    return f"{int(max(seconds, 0))}s"


def _ago(then: float, now: float) -> str:
    return duration(now - then)


def _until(then: float | None, now: float) -> str:
    return "-" if then is None or then <= now else f"{duration(then - now)} left"
