"""A process in the engine's place that answers every request at once: what a turn takes is then the proxy's own. Knows the door's
values, no model.

python -m bench.instant_engine --fd N    (what else is said is ignored)
"""

import argparse
import socket
import struct
from collections.abc import Iterator
from itertools import count

from bench.talks import CALLS_A_ROUND, call_arguments
from engine.api import (
    FRAME_HEADER,
    AnchorKind,
    CheckpointId,
    CheckpointInfo,
    CountTokens,
    Delta,
    DeltaKind,
    Event,
    Finished,
    FinishReason,
    Generate,
    LedgerEntry,
    Ready,
    ResumeReason,
    Shutdown,
    Snapshot,
    Started,
    TakeSnapshot,
    Tier,
    TokenCount,
    decode_payload,
    encode_frame,
)

TOKENIZER = "instant"
TOKENS_PER_MESSAGE = 100
ANSWER = " ".join(["done"] * 50)
OUTPUT_TOKENS = 50
IMAGE_BYTES = 147_000_000
LEDGER = LedgerEntry(struct.pack(f"<{OUTPUT_TOKENS}I", *range(OUTPUT_TOKENS)), 0, TOKENIZER)
READY = Ready("instant", "instant", TOKENIZER, 1 << 20, 4, "none")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    options, _ = parser.parse_known_args()
    with socket.socket(fileno=options.fd) as door, door.makefile("rb") as incoming:
        door.sendall(encode_frame(READY))
        made = count(1)
        while len(header := incoming.read(FRAME_HEADER.size)) == FRAME_HEADER.size:
            command = decode_payload(incoming.read(*FRAME_HEADER.unpack(header)))
            if isinstance(command, Shutdown):
                break
            door.sendall(b"".join(map(encode_frame, answers(command, made))))


def answers(command: object, made: Iterator[int]) -> Iterator[Event]:
    """What the engine would say, had it nothing to compute. Each turn makes checkpoints at its anchors and at its end."""
    if isinstance(command, TakeSnapshot):
        yield Snapshot(command.request_id, (), 0, (), ())
    if isinstance(command, CountTokens):
        yield TokenCount(command.request_id, len(command.prompt.messages) * TOKENS_PER_MESSAGE)
    if isinstance(command, Generate):
        yield from turn(command, made)


def turn(request: Generate, made: Iterator[int]) -> Iterator[Event]:
    borders = tuple(
        TOKENS_PER_MESSAGE * number for number in range(len(request.prompt.messages) + 1)
    )
    reused = max(0, borders[-1] - 2 * TOKENS_PER_MESSAGE)
    reason = ResumeReason.RESUMED if reused else ResumeReason.NOTHING_STORED
    yield Started(request.request_id, borders[-1] + 4, reused, reused, reason, None, borders)
    said = answer(request, next(made))
    yield said
    anchors = [(each.kind, borders[each.messages] - each.back) for each in request.anchors]
    places = (*anchors, (AnchorKind.TIP, borders[-1] + OUTPUT_TOKENS))
    yield Finished(
        request.request_id,
        FinishReason.TOOL_CALLS if said.call else FinishReason.STOP,
        output_tokens=OUTPUT_TOKENS,
        reasoning_tokens=0,
        reused_tokens=reused,
        ledger=LEDGER,
        checkpoints=tuple(
            CheckpointInfo(
                # The same names again: as if the one before had made way.
                CheckpointId(f"{request.continuation}.{kind}"),
                request.continuation,
                kind,
                position,
                Tier.DEVICE,
                IMAGE_BYTES,
            )
            for kind, position in places
            if position > 0
        ),
    )


def answer(request: Generate, number: int) -> Delta:
    """A call, until `CALLS_A_ROUND` have been answered since the user spoke; then some words."""
    answered = 0
    for message in reversed(request.prompt.messages):
        if message.role == "user":
            break
        answered += message.role == "tool"
    if request.prompt.tools and answered < CALLS_A_ROUND:
        call = request.prompt.tools[0].name, call_arguments(number)
        return Delta(request.request_id, DeltaKind.TOOL_CALL, call=call, tokens=OUTPUT_TOKENS)
    return Delta(request.request_id, DeltaKind.TEXT, ANSWER, tokens=OUTPUT_TOKENS)


if __name__ == "__main__":
    main()
