"""The request log: what real clients' requests leave in it, that it holds no content, and that a replay decides as the proxy did."""

import errno
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from in_process import in_process, user
from recorded_turns import Script, replay

from ninfer_proxy.errors import CommandRefused, StartRefused
from ninfer_proxy.logged import LoggedRequest, logged_request
from ninfer_proxy.simulate.budget import Budget
from ninfer_proxy.simulate.cost import Cost
from ninfer_proxy.simulate.ours import Ours
from ninfer_proxy.simulate.policy import Begun
from ninfer_proxy.simulate.request import Request
from ninfer_proxy.simulate.schedule import Happens, schedule
from ninfer_proxy.simulate.workload import workload
from ninfer_proxy.turn.ahead import Ahead
from ninfer_proxy.turn.request_log import RequestLog

RECORDED = (
    "a_nocont",
    "b2_cont_ids",
    "f5_heartbeat",
    "f8_autocompact",
    "g2_openai_heartbeat",
    "c2_parallel",
)
SLOTS = 12


def logged(path: Path) -> list[LoggedRequest]:
    return [logged_request(line) for line in path.read_text().splitlines()]


def simulated(requests: Sequence[Request], budget: Budget) -> list[Begun]:
    """What our policy does with each of them."""
    ours, found = Ours(budget, Cost()), {}
    for _, what, index in schedule(requests):
        if what is Happens.BEGINS:
            found[index] = ours.begin(requests[index])
        else:
            ours.end(requests[index])
    return [found[index] for index in range(len(requests))]


@pytest.mark.parametrize("capture", RECORDED)
async def test_a_replay_decides_as_the_proxy_did(
    tmp_path: Path, capture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for what the proxy has computed beforehand: the log doesn't say which items its clients take back."""
    monkeypatch.setattr(Ahead, "prepare", lambda *_: None)
    path, script = tmp_path / "requests.log", Script()
    async with in_process(
        tmp_path / "data", script, slots__count=SLOTS, server__request_log=str(path)
    ) as proxy:
        run = await replay(proxy, capture, script)
    records = sorted(logged(path), key=lambda record: record.begins)
    assert len(records) == len(run.turns)
    told = [decision for _, decision in run.turns]
    assert [str(record.reused_tokens) for record in records] == [each["reused"] for each in told]
    found = simulated(workload([("log", path.read_text())], 0), Budget(slots=SLOTS))
    assert [begun.slot for begun in found] == [record.slot for record in records]
    assert [begun.reused_tokens for begun in found] == [record.reused_tokens for record in records]


async def test_a_fork_and_another_tenant(tmp_path: Path) -> None:
    path = tmp_path / "requests.log"
    async with in_process(tmp_path / "data", server__request_log=str(path)) as proxy:
        first = await proxy.create(instructions="Help.", input=[user("one two three four")])
        parent = first.json()["id"]
        for words in ("five", "six"):
            await proxy.create(
                instructions="Help.", input=[user(words)], previous_response_id=parent
            )
        await proxy.create("other", instructions="Help.", input=[user("one two three four")])
    records = logged(path)
    assert [record.parent for record in records] == [
        None,
        records[0].conversation,
        records[0].conversation,
        None,
    ]
    assert len({record.conversation for record in records}) == 2
    assert records[0].tenant != records[3].tenant
    # With slots it would be taken for short of memory, and the older answer's end dropped.
    found = simulated(workload([("log", path.read_text())], 0), Budget(bytes=1 << 50))
    assert [begun.slot for begun in found] == [record.slot for record in records]
    assert [begun.reused_tokens for begun in found] == [record.reused_tokens for record in records]
    assert found[3].reused_tokens == 0, "nothing of another tenant's"


async def test_the_log_holds_no_content(tmp_path: Path) -> None:
    path = tmp_path / "requests.log"
    secret = "xylophone"
    tool = {"type": "function", "name": f"{secret}_tool", "parameters": {"type": "object"}}
    async with in_process(tmp_path / "data", server__request_log=str(path)) as proxy:
        answer = await proxy.create(
            secret,
            instructions=f"Say {secret}.",
            input=[user(f"What is a {secret}?")],
            tools=[tool],
            metadata={"session_id": secret},
            user=secret,
            prompt_cache_key=secret,
            headers={"session_id": secret, "user-agent": secret},
        )
        assert secret in answer.text
    (line,) = path.read_text().splitlines()
    assert secret not in line
    assert secret.encode().hex() not in line
    record = json.loads(line)
    assert record["v"] == 1
    assert record["items"][0].startswith("u:")
    assert record["scope"].startswith("session:")
    assert path.stat().st_mode & 0o777 == 0o600


async def test_equal_words_have_other_hashes_elsewhere(tmp_path: Path) -> None:
    """Each data directory has a secret of its own, so that words can't be tried on a log."""
    lines = []
    for name in ("here", "there"):
        path = tmp_path / f"{name}.log"
        async with in_process(tmp_path / name, server__request_log=str(path)) as proxy:
            for _ in range(2):
                await proxy.create(input=[user("yes")])
        lines.append([record.items[0] for record in logged(path)])
    assert lines[0][0] == lines[0][1]
    assert lines[1][0] == lines[1][1]
    assert lines[0][0] != lines[1][0]


async def test_a_log_that_cannot_be_written_holds_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "requests.log"
    async with in_process(tmp_path / "data", server__request_log=str(path)) as proxy:

        def full(*_: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            for words in ("one", "two"):
                assert (await proxy.create(input=[user(words)])).status_code == 200
        assert (await proxy.create(input=[user("three")])).status_code == 200
    told = [record for record in caplog.records if "request log" in record.message]
    assert len(told) == 1
    assert "No space left on device" in told[0].message
    assert len(logged(path)) == 1


async def test_a_torn_line_stays_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "requests.log"
    write = os.write
    async with in_process(tmp_path / "data", server__request_log=str(path)) as proxy:
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", lambda file, content: write(file, content[:40]))
            await proxy.create(input=[user("one")])
        await proxy.create(input=[user("two")])
    first, second = path.read_text().splitlines()
    assert len(first) == 40
    assert logged_request(second).status == "completed"
    with pytest.raises(CommandRefused, match=r"Line 2 of log is no record of a request log: "):
        workload([("log", f"{second}\n{first}\n")], 0)


def test_a_log_that_cannot_be_opened_refuses_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartRefused, match=r"nowhere/requests\.log can't be written: No such file"):
        RequestLog(tmp_path / "nowhere" / "requests.log", b"secret")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"v":1}', "Line 1 of log is no record of a request log: it lacks 'begins'."),
        ('{"v":2}', "Line 1 of log is no record of a request log: it is no record of version 1."),
    ],
)
def test_what_is_no_record_is_named(line: str, said: str) -> None:
    with pytest.raises(CommandRefused) as refused:
        workload([("log", line)], 0)
    assert str(refused.value) == said
