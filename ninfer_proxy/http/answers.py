"""How a running turn is answered as a stream, and the headers both kinds of answer carry. Knows no wire format."""

from ninfer_proxy.http.service import RunningTurn
from ninfer_proxy.http.settings import HttpSettings
from ninfer_proxy.http.sse import Encoder, EventStream
from ninfer_proxy.types import Turn

MAX_HEADER_CHARS = 1000


def stream(
    turn: Turn, running: RunningTurn, encoder: Encoder, settings: HttpSettings
) -> EventStream:
    return EventStream(
        running,
        encoder,
        headers=turn_headers(turn, running),
        keep_alive_s=settings.keep_alive_s,
        still_running_s=settings.still_running_s,
    )


def turn_headers(turn: Turn, running: RunningTurn) -> dict[str, str]:
    """What a client can learn without reading the body."""
    headers = {"x-ninfer-decision": header_text(running.decision_header)}
    if turn.warnings:
        headers["x-ninfer-warnings"] = header_text("; ".join(turn.warnings))
    return headers


def header_text(text: str) -> str:
    """`text` as a header may carry it: printable ASCII, of bounded length."""
    plain = text[:MAX_HEADER_CHARS].encode("ascii", "backslashreplace").decode()
    return "".join(char if char.isprintable() else " " for char in plain)
