"""The CPU kernels in C (`native.c` of each operation): compiled at the first use with the machine's own compiler, found again later.

Without a compiler, or where compiling fails, `library` is None and the operations compute with torch: slower by far for single
tokens, and nothing else is different. A step of many small kernels can be recorded and repeated with one call, as a CUDA graph is;
also in the background, where it takes nothing from Python.
Knows no operation.
"""

import atexit
import ctypes
import hashlib
import logging
import os
import platform
import shutil
import struct
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

log = logging.getLogger(__name__)

Argument = torch.Tensor | int | float | None

OPERATIONS = Path(__file__).parents[1]
FLAGS = (
    *("-O3", "-march=native", "-std=gnu11", "-fPIC", "-shared"),
    *("-fno-math-errno", "-fno-trapping-math"),
    "-pthread",
    "-fopenmp",  # resolved to the library that torch has loaded, so that both share one set of threads
)
COMPILING_S = 120.0
WORTH_SHARING = 1 << 20
"""Multiplications that take longer than waking another thread."""


@cache
def library() -> ctypes.CDLL | None:
    """All kernels, or None with the reason in the log. Takes some seconds the first time on a machine."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        log.warning("no C compiler (cc, gcc or $CC): the CPU kernels are torch's, and slower")
        return None
    try:
        found = ctypes.CDLL(str(compiled(compiler, _cache_directory())))
        found.begin.restype, found.end.argtypes = ctypes.c_int64, (ctypes.c_int64,)
        return found
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or error
        log.warning(
            "the CPU kernels are torch's, and slower: %s can't make ours: %s", compiler, said
        )
        return None


def serves(*tensors: torch.Tensor) -> bool:
    """Whether kernels are there for tensors like these: fp32 in this machine's memory."""
    for tensor in tensors:
        if tensor.dtype is not torch.float32 or not tensor.is_cpu:
            return False
    return library() is not None


def call(name: str, *arguments: Argument, work: int = 0) -> None:
    """Calls a kernel, or only notes it down while `recording`. Tensors stand for the address of their first element, None for null;
    int and float become 8 bytes each. `work`, in multiplications, says whether several threads are worth it.
    """
    known = _kernels.get(name)
    if known is None:
        known = _kernels[name] = _kernel(name, arguments)
    entry, layout = known
    packed = layout.pack(*[_plain(argument) for argument in arguments])
    recording = getattr(_local, "recording", None)
    if recording is not None:
        recording.add(entry, packed, arguments)
    elif work < WORTH_SHARING:
        entry(packed, 0, 1)
    else:
        alone = Recording()
        alone.add(entry, packed, ())
        alone.replay(torch.get_num_threads())


class Recording:
    """Calls that were noted down, to be repeated as one. The memory they name stays alive and in place with it."""

    def __init__(self) -> None:
        self._entries: list[int] = []
        self._packed: list[ctypes.Array[ctypes.c_char]] = []
        self._kept: list[torch.Tensor] = []
        self._number = 0

    def add(self, entry: Any, packed: bytes, arguments: Sequence[Argument]) -> None:
        address = ctypes.cast(entry, ctypes.c_void_p).value
        assert address is not None
        self._entries.append(address)
        self._packed.append(ctypes.create_string_buffer(packed, len(packed)))
        self._kept += [argument for argument in arguments if isinstance(argument, torch.Tensor)]

    def replay(self, threads: int) -> None:
        """All calls in their order, each shared out among `threads` threads."""
        _loaded().replay(self._packed_whole(threads))

    def begin(self, threads: int) -> None:
        """A replay in the background, behind those that run there. Of its threads one is the caller's, while it waits in `end`; until
        then nobody else touches what is worked on.
        """
        with _beginning:
            self._number = _loaded().begin(self._packed_whole(threads))
            _in_background[:] = [self]

    def end(self) -> None:
        """Helps, and waits for the end of what was begun last, if anything was."""
        _loaded().end(self._number)

    def _packed_whole(self, threads: int) -> bytes:
        entries, packed = map(ctypes.addressof, self._tables)
        return struct.pack("qqqq", entries, packed, len(self._entries), threads)

    @cached_property
    def _tables(self) -> tuple[ctypes.Array[ctypes.c_void_p], ctypes.Array[ctypes.c_void_p]]:
        """Where the calls and their arguments are; made when nothing more is noted down."""
        kind = ctypes.c_void_p * len(self._entries)
        return kind(*self._entries), kind(*map(ctypes.addressof, self._packed))


@contextmanager
def recording() -> Iterator[Recording]:
    """Kernels called inside, on this thread, are noted down and not run. Raises NotRecorded where anything else would compute."""
    made = Recording()
    _local.recording = made
    try:
        with _NothingElse():
            yield made
    finally:
        _local.recording = None


class NotRecorded(RuntimeError):
    """Something computed with torch, which a repetition would leave out."""


class _NothingElse(TorchFunctionMode):
    """Lets tensors be made, looked at and viewed; not computed, changed or read.

    A dispatch mode would see more of torch's inside, but brings a hundred megabytes of modules with it.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name: str = func.__name__
        changes = name.endswith("_") and not name.startswith("__")
        if not changes and name not in _READING:
            result = func(*args, **(kwargs or {}))
            if name in _MAKING or _is_view(result, args):
                return result
        raise NotRecorded(f"{name} is no kernel")


def _is_view(result: object, args: Sequence[Any]) -> bool:
    """Whether what came out, if it holds tensors, is memory that went in."""
    results = result if isinstance(result, tuple | list) else (result,)
    tensors = [each for each in results if isinstance(each, torch.Tensor)]
    given = {_storage(each) for each in args if isinstance(each, torch.Tensor)}
    return all(_storage(each) in given for each in tensors)


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


_MAKING = {"empty", "new_empty", "empty_like"}
_READING = {
    *("item", "tolist", "numpy", "equal", "__setitem__"),
    *("__bool__", "__int__", "__float__", "__index__"),
}
_kernels: dict[str, tuple[Any, struct.Struct]] = {}
_beginning = threading.Lock()
_in_background: list[Recording] = []
"""The one that may be running, so that nothing of it goes away meanwhile."""
_local = threading.local()


@atexit.register
def _end_background() -> None:
    """Memory goes away behind this."""
    for each in _in_background:
        each.end()


def _loaded() -> ctypes.CDLL:
    found = library()
    assert found is not None
    return found


def _kernel(name: str, arguments: Sequence[Argument]) -> tuple[Any, struct.Struct]:
    entry = getattr(_loaded(), name)
    entry.argtypes, entry.restype = (ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64), None
    return entry, struct.Struct("".join("d" if isinstance(x, float) else "q" for x in arguments))


def _plain(argument: Argument) -> int | float:
    if isinstance(argument, torch.Tensor):
        return argument.data_ptr()
    return 0 if argument is None else argument


def compiled(compiler: str, directory: Path) -> Path:
    """The library for this machine in `directory`, made unless it is there. Raises OSError or SubprocessError."""
    sources = sorted(OPERATIONS.glob("*/native.c"))
    headers = sorted(Path(__file__).parent.glob("*.h"))
    said = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    digest = hashlib.sha256(repr((FLAGS, compiler, said.stdout, _processor())).encode())
    for file in (*headers, *sources):
        digest.update(file.read_bytes())
    target = directory / f"kernels-{digest.hexdigest()[:32]}.so"
    if not target.exists():
        log.info("compiling the CPU kernels with %s", compiler)
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            fresh = Path(scratch) / target.name
            command = [compiler, *FLAGS, f"-I{headers[0].parent}", *map(str, sources)]
            subprocess.run(
                [*command, "-lm", "-o", str(fresh)],
                capture_output=True,
                text=True,
                check=True,
                timeout=COMPILING_S,
            )
            fresh.replace(target)
    return target


def _cache_directory() -> Path:
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    directory = root / "ninfer-engine"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return directory


def _processor() -> str:
    """What `-march=native` depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return platform.machine() + "".join(
        sorted({x for x in lines if x.startswith(("flags", "Features"))})
    )
