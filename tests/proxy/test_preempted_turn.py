"""A turn that made way for others: its client, its explanation and the metrics are told what it reused in the end."""

from collections.abc import Sequence
from pathlib import Path

from in_process import ADMIN, InProcess, answer_of, in_process, user

from engine.api import Generate
from ninfer_proxy.backends.scripted import Performance, text

HEAD = "You help with a small code base. " + "Rules apply. " * 200


async def converse(data_dir: Path, again_tokens: Sequence[int]) -> tuple[list[int], str]:
    """What usage calls cached, turn by turn, and the metrics; the n-th turn computes `again_tokens[n]` twice."""
    turns = iter(again_tokens)

    def script(_: Generate) -> Performance:
        return Performance((text("so"),), again_tokens=next(turns))

    async with in_process(data_dir, script) as proxy:
        history: list[dict[str, object]] = []
        cached = [await one_turn(proxy, history, again) for again in again_tokens]
        return cached, (await proxy.http.get("/metrics")).text


async def one_turn(proxy: InProcess, history: list[dict[str, object]], again: int) -> int:
    """All that is told of the turn is the same figure."""
    history.append(user("go on"))
    response = await proxy.create(instructions=HEAD, input=history)
    assert response.status_code == 200, response.text
    history += answer_of(response)
    usage = response.json()["usage"]
    cached = int(usage["input_tokens_details"]["cached_tokens"])
    path = f"/admin/responses/{response.json()['id']}"
    told = (await proxy.http.get(path, headers=ADMIN)).json()
    assert told["cached_tokens"] == told["reused_tokens"] == cached
    assert told["prefilled_tokens"] == usage["input_tokens"] - cached
    assert ("made way for others" in told["detail"]) == (again > 0)
    return cached


async def test_what_was_computed_again_is_not_cached(tmp_path: Path) -> None:
    undisturbed, _ = await converse(tmp_path / "undisturbed", (0, 0, 0))
    assert undisturbed[0] == 0 < 50 < undisturbed[1] < undisturbed[2]
    cached, metrics = await converse(tmp_path / "disturbed", (0, 50, 100_000))
    assert cached == [0, undisturbed[1] - 50, 0]
    assert f"ninfer_reused_tokens_total {undisturbed[1] - 50}.0" in metrics
