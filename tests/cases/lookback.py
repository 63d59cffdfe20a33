"""After a case was played: what the server tells at the end, and requests that checks compare with. Judges nothing."""

import asyncio

from tests.cases.evidence import Evidence
from tests.cases.macros import mapped
from tests.cases.play import Play, wants_its_own_start


async def look_back(play: Play) -> Evidence:
    """The evidence, complete. Of a server that has ended only its log is left."""
    evidence, proxy, records = play.evidence, play.proxy, play.records
    evidence.log, evidence.alive = proxy.log, proxy.is_running
    if not evidence.alive:
        return evidence
    await _read_records(play)
    evidence.health = await proxy.get("/health", {}) or {}
    evidence.metrics = await proxy.text("/metrics")
    evidence.database.integrity.append(await asyncio.to_thread(records.integrity))
    evidence.database.rows = await asyncio.to_thread(records.row_counts)
    if wants_its_own_start(play.case):
        evidence.database.fixture_rows = await asyncio.to_thread(records.fixture_rows)
    play.note_memory()
    await _send_again(play)
    return evidence


async def _read_records(play: Play) -> None:
    """What a client can read back of each response."""
    asked = [
        (answer, {**play.key, **request.headers})
        for request in play.case.requests()
        if (answer := play.evidence.answers.get(request.step)) is not None
    ]
    asked += [(each, play.key) for many in play.evidence.generated.values() for each in many]
    for answer, headers in asked:
        if answer.response_id:
            path = f"/v1/responses/{answer.response_id}"
            answer.record = await play.proxy.get(path, headers)


async def _send_again(play: Play) -> None:
    """Each with all caches dropped and nothing beside it."""
    evidence = play.evidence
    for check in play.case.checks:
        given = check.parameters
        if check.name == "equals_cold":
            await play.proxy.drop_caches()
            evidence.cold[given["step"]] = await play.again(given["step"])
        elif str(given.get("of", "")).endswith(".solo") or "frac_of_solo" in given:
            step = given["step"] if "frac_of_solo" in given else given["of"].removesuffix(".solo")
            await play.proxy.drop_caches()
            evidence.solo[step] = await play.again(step)
        elif check.name == "control_token_count_equals_plain":
            plain = mapped(evidence.answer(given["step"]).sent, play.text.without_control)
            evidence.plain[given["step"]] = await play.again(given["step"], plain)
