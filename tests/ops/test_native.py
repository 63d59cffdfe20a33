"""Compiling, calling and recording the C kernels; the exponential they share; the small ones against torch."""

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from engine.ops import native
from engine.ops.embedding import embedding
from engine.ops.linear import linear, pack
from engine.ops.output_gate import output_gate
from engine.ops.swiglu import swiglu


@pytest.mark.parametrize("size", [1, 7, 16, 24, 256])
def test_swiglu(size: int) -> None:
    x = torch.randn(9, 2 * size) * 10
    expected = (F.silu(x[:, :size].double()) * x[:, size:].double()).float()
    torch.testing.assert_close(swiglu(x), expected, atol=1e-6, rtol=2e-6)


def test_swiglu_of_extreme_numbers() -> None:
    gate = torch.tensor([[-1e30, -100.0, -88.0, -0.0, 0.0, 88.0, 100.0, 1e30, float("nan")]])
    got = swiglu(torch.cat((gate, torch.ones_like(gate)), dim=1))
    torch.testing.assert_close(got, F.silu(gate), atol=1e-36, rtol=1e-6, equal_nan=True)


@pytest.mark.parametrize("size", [8, 16, 50])
def test_output_gate(size: int) -> None:
    gate = torch.randn(5, 3, 2 * size)[..., size:]
    x = torch.randn(5, 3, size)
    expected = (x.double() * gate.double().sigmoid()).float()
    torch.testing.assert_close(output_gate(x, gate), expected, atol=1e-7, rtol=2e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_embedding(dtype: torch.dtype) -> None:
    table, ids = torch.randn(50, 33).to(dtype), torch.tensor([0, 49, 7, 7])
    assert torch.equal(embedding(ids, table, torch.float32), table[ids].float())


def test_the_work_is_shared_without_a_gap(kernels: str) -> None:
    """Every operation that is shared among threads gives the same with one and with several."""
    matrix = pack(torch.randn(512, 4100))
    x = torch.randn(17, 512)
    alone = linear(x, matrix), swiglu(torch.cat((x, x), dim=1).repeat(500, 1))
    torch.set_num_threads(3)
    shared = linear(x, matrix), swiglu(torch.cat((x, x), dim=1).repeat(500, 1))
    if kernels == "C":
        assert all(torch.equal(*each) for each in zip(alone, shared, strict=True))
    else:
        torch.testing.assert_close(alone, shared)


@pytest.mark.parametrize("kernels", ["C"], indirect=True)
class TestRecording:
    @pytest.mark.parametrize("threads", [1, 2])
    def test_a_replay_computes_on_what_is_there_then(self, threads: int) -> None:
        x, matrix = torch.zeros(2, 64), pack(torch.randn(64, 128))
        with native.recording() as recording:
            out = swiglu(linear(x, matrix))
        for _ in range(3):
            x.copy_(torch.randn(2, 64))
            recording.replay(threads)
            assert torch.equal(out, swiglu(linear(x, matrix)))

    def test_nothing_runs_while_it_is_recorded(self) -> None:
        x, packed = torch.ones(1, 64), pack(torch.eye(64))
        residual = torch.ones(1, 64)
        with native.recording() as recording:
            out = linear(x, packed, residual)
        out.fill_(7.0)
        x.fill_(4.0)
        assert torch.equal(out, torch.full((1, 64), 7.0))
        recording.replay(1)
        assert torch.equal(out, torch.full((1, 64), 5.0))

    @pytest.mark.parametrize(
        "act",
        [
            lambda x: x + 1,
            lambda x: x.add_(1),
            lambda x: torch.zeros_like(x),
            lambda x: x.T.flatten(),  # has to copy
            lambda x: x.clone(),
            lambda x: x[0, 0].item(),
            lambda x: x.tolist(),
            lambda x: bool(x[0, 0]),
            lambda x: x.__setitem__(0, 2.0),
            lambda x: F.silu(x),
            lambda x: x[torch.tensor([0])],
        ],
    )
    def test_torch_may_not_compute(self, act: Callable[[torch.Tensor], object]) -> None:
        x = torch.ones(2, 32)
        with pytest.raises(native.NotRecorded), native.recording():
            act(x)
        assert torch.equal(x, torch.ones(2, 32))
        recorded_after = swiglu(x)  # runs again, nothing is left switched on
        torch.testing.assert_close(recorded_after, F.silu(x[:, :16]))

    def test_views_are_made_once(self) -> None:
        x = torch.randn(4, 64)
        with native.recording() as recording:
            out = swiglu(x.view(8, 32))
        recording.replay(1)
        assert torch.equal(out, swiglu(x.view(8, 32)))

    @pytest.mark.parametrize("threads", [1, 2, 3])
    def test_in_the_background_it_computes_the_same(self, threads: int) -> None:
        """Two of them in turns, each begun before the other was waited for."""
        matrix = pack(torch.randn(64, 1024))
        inputs, outputs, recordings = [], [], []
        for _ in range(2):
            inputs.append(torch.zeros(3, 64))
            with native.recording() as recording:
                outputs.append(swiglu(linear(inputs[-1], matrix)))
            recordings.append(recording)
        for _ in range(200):
            for x, recording in zip(inputs, recordings, strict=True):
                x.copy_(torch.randn(3, 64))
                recording.begin(threads)
            for x, out, recording in zip(inputs, outputs, recordings, strict=True):
                recording.end()
                assert torch.equal(out, swiglu(linear(x, matrix)))

    def test_the_background_serves_several_threads(self) -> None:
        matrix = pack(torch.randn(64, 1024))

        def repeat(seed: int) -> bool:
            generator = torch.Generator().manual_seed(seed)
            x = torch.zeros(3, 64)
            with native.recording() as recording:
                out = swiglu(linear(x, matrix))
            same = True
            for _ in range(100):
                x.copy_(torch.randn(3, 64, generator=generator))
                recording.begin(2)
                recording.end()
                same = same and torch.equal(out, swiglu(linear(x, matrix)))
            return same

        with ThreadPoolExecutor(3) as threads:
            assert all(threads.map(repeat, range(3)))

    def test_an_end_without_a_beginning_is_none(self) -> None:
        x = torch.randn(1, 64)
        with native.recording() as recording:
            swiglu(x)
        recording.end()


@pytest.mark.parametrize("compiler", ["/nonexistent/cc", "false"])
def test_without_a_compiler_torch_serves(compiler: str, tmp_path: Path) -> None:
    program = (
        "import torch; from engine.ops import native; from engine.ops.swiglu import swiglu;"
        "assert native.library() is None; print(swiglu(torch.ones(1, 4)).tolist())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"CC": compiler, "PATH": "/usr/bin:/bin", "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    assert "0.731" in done.stdout
    assert "the CPU kernels are torch's, and slower" in done.stderr


def test_compiled_once(tmp_path: Path) -> None:
    """A second start finds the library; a change of compiler or sources makes another."""
    first = native.compiled("cc", tmp_path)
    made = first.stat().st_mtime_ns
    assert native.compiled("cc", tmp_path) == first
    assert first.stat().st_mtime_ns == made
    assert [each.name for each in tmp_path.iterdir()] == [first.name]
