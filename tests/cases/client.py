"""Sends one request as a client does and notes what comes when. Knows HTTP; no case."""

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

import httpx

from tests.cases.answer import Answer
from tests.cases.sse import Stream

PATIENCE_S = 300.0


async def send(
    url: str,
    method: str,
    path: str,
    body: Mapping[str, Any],
    headers: Mapping[str, str],
    answer: Answer,
) -> Answer:
    """Fills `answer` while it comes. Cancelling this closes the connection, as a client that leaves does."""
    began = answer.began = time.monotonic()
    try:
        async with (
            httpx.AsyncClient(base_url=url, timeout=PATIENCE_S, trust_env=False) as client,
            client.stream(method, path, json=dict(body), headers=dict(headers)) as got,
        ):
            answer.status, answer.headers = got.status_code, dict(got.headers)
            streamed = got.headers.get("content-type", "").startswith("text/event-stream")
            whole = b""
            if streamed:
                answer.stream = Stream()
            async for chunk in got.aiter_raw():
                at = time.monotonic() - began
                answer.first_byte_s = answer.first_byte_s or at
                if answer.stream is not None:
                    answer.stream.feed(chunk, at)
                else:
                    whole += chunk
            if answer.stream is not None:
                answer.stream.end()
            elif whole:
                answer.json = json.loads(whole)
    except asyncio.CancelledError:
        answer.trouble = "its client left"
    except (httpx.HTTPError, ValueError) as error:
        answer.trouble = f"{type(error).__name__}: {error}"
    answer.ended_s = time.monotonic() - began
    return answer
