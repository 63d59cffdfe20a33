"""The command `simulate`: its table, its JSON, its picture, and what it says when something is wrong."""

import json
import lzma
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ninfer_proxy import cli
from ninfer_proxy.errors import CommandRefused
from tests.pure.simulated import recorded

POLICIES = ["ours", "lru_slots", "private_cells", "block_lru", "optimum"]


def test_a_packed_file(files, tmp_path):
    (tmp_path / "packed.json.xz").write_bytes(lzma.compress(Path(files[0]).read_bytes()))
    plain, packed = (
        simulate(files[0], "--json"),
        simulate(str(tmp_path / "packed.json.xz"), "--json"),
    )
    assert plain.output == packed.output


@pytest.fixture
def files(tmp_path):
    """Three recorded traces, one with sub-agents."""
    wanted = ("trace_0129", "trace_0277", "trace_0527")
    paths = []
    for name, text in recorded():
        if name in wanted:
            paths.append(tmp_path / f"{name}.json")
            paths[-1].write_text(text)
    return [str(path) for path in paths]


def simulate(*arguments):
    return CliRunner().invoke(cli.app, ["simulate", *arguments], catch_exceptions=False)


def test_json_has_every_policy(files):
    done = simulate(*files, "--slots", "2", "--json")
    answer = json.loads(done.output)
    assert [each["policy"] for each in answer["policies"]] == POLICIES
    assert (answer["slots"], answer["bytes"], answer["conversations"]) == (2, None, 7)
    assert all(each["prompt_tokens"] == 5_298_895 for each in answer["policies"])
    least = answer["policies"][-1]
    assert least["against_optimum"] == 1
    for each in answer["policies"]:
        assert least["prefilled_tokens"] <= each["prefilled_tokens"] <= each["prompt_tokens"]
        share = each["prefilled_tokens"] / each["prompt_tokens"]
        assert each["prefilled_share"] == pytest.approx(share, abs=1e-6)


def test_the_table_tells_what_the_policies_are(files):
    done = simulate(*files, "--bytes", "40 GiB", "--policy", "ours", "--policy", "optimum")
    assert "of 7 conversations" in done.output
    assert "42,949,672,960 bytes" in done.output
    assert "lru_slots" not in done.output
    assert done.output.index("\n ours ") < done.output.index("\n optimum ")


def test_the_spread_decides_how_much_comes_together(files):
    apart, at_once = (
        json.loads(simulate(*files, "--slots", "1", "--spread", spread, "--json").output)
        for spread in ("1000000", "0")
    )
    lost = [each["policies"][-1]["evictions"] for each in (apart, at_once)]
    assert lost[0] < lost[1]


@pytest.mark.parametrize(
    ("name", "magic"), [("out.png", b"\x89PNG\r\n"), ("out.svg", b"<?xml"), ("out", b"\x89PNG")]
)
def test_the_picture(files, tmp_path, name, magic):
    simulate(*files, "--slots", "2", "--plot", str(tmp_path / name), "--json")
    assert (tmp_path / name).read_bytes().startswith(magic)


def test_without_matplotlib_it_says_what_to_install(files, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(CommandRefused, match=r"pip install 'ninfer-proxy\[plot\]'"):
        simulate(*files, "--plot", str(tmp_path / "out.png"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--slots", "2", "--bytes", "1 GiB"], "--slots and --bytes exclude each other"),
        (["--bytes", "much"], "--bytes 'much' is not bytes"),
        (["--policy", "best"], "--policy best is none of ours, lru_slots"),
        (["--policy", "optimum", "--plot", "out.png"], "the optimum has none"),
        (["--plot", "out.tiffany"], "--plot: Format 'tiffany' is not supported"),
        (["--plot", "missing/out.png"], "missing/out.png can't be written: No such file"),
    ],
)
def test_what_is_wrong_is_said(files, arguments, said):
    with pytest.raises(CommandRefused) as refused:
        simulate(*files, *arguments)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "x.json can't be read: No such file or directory."),
        (b"\xff\xfe", "x.json is no text."),
        (b"\xc3\x28", "x.json is no text."),
        (b"nothing", "x is no trace: "),
    ],
)
def test_a_file_that_is_no_trace_is_named(tmp_path, content, said):
    path = tmp_path / "x.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CommandRefused) as refused:
        simulate(str(path))
    assert said in str(refused.value)


def test_a_refusal_is_told_without_a_traceback(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["ninfer-proxy", "simulate", "/nowhere.json"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == (
        "ninfer-proxy: /nowhere.json can't be read: No such file or directory.\n"
    )
