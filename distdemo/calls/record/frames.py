"""Find out who makes a call: the user's lines, a package's or a part of torch."""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from types import CodeType, FrameType, ModuleType

import torch
from torch.distributed import c10d_logger, rpc
from torch.distributed import distributed_c10d as c10d

from distdemo.calls.records import SourceLine, TorchPart
from distdemo.launcher.stacks import (
    CELL_FILES,
    is_installed,
    is_library,
    is_ours,
    original_name,
)

TORCH = os.path.dirname(torch.__file__) + os.sep  # compared with file names of code
TORCH_TESTS = f"{TORCH}testing{os.sep}"  # a package for this purpose: its tests make calls
DISTRIBUTED = f"{TORCH}distributed"
DDP_HOOKS = f"{DISTRIBUTED}{os.sep}algorithms{os.sep}ddp_comm_hooks{os.sep}"
HOOKS = os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep  # as above
RPC: ModuleType = getattr(rpc, "api", rpc)  # it is missing in a build of torch without RPC
API = (c10d.__file__, c10d_logger.__file__, rpc.__file__, RPC.__file__ or rpc.__file__)
"""Files whose calls are those of their caller."""
MAX_FRAMES = 12  # frames outside the innermost one of the user or a package
GRAPH = "<eval_with_key>"  # begins the names of the files of graphs
BACKWARD_FILES = tuple(
    TORCH + path.replace("/", os.sep)
    for path in (
        "_tensor.py",
        "autograd/",
        "distributed/algorithms/ddp_comm_hooks/",
        "distributed/fsdp/",
        "nn/parallel/distributed.py",
    )
)
"""Beginnings of the names of torch's files that make calls in a backward pass."""
DDP_FUNCTIONS = {"__init__": "constructor", "main_hook": "join()", "post_hook": "join()"}


# ----------------------------------------------------------------------------------- source lines


def user_frames(depth: int) -> tuple[tuple[int, ...], list[FrameType]]:
    """Return the frames of the user and of installed packages, innermost first, and a key.

    Packages count only up to the user's innermost frame.

    Args:
        depth: Number of inner frames to skip.
    """
    frame: FrameType | None = sys._getframe(depth)
    remaining = MAX_FRAMES
    has_user = False
    frames: list[FrameType] = []
    key: list[int] = []
    while frame is not None and remaining:
        code = frame.f_code
        owner = owner_of(code.co_filename)
        if owner == "user" or (owner == "package" and not has_user):
            frames.append(frame)
            key += id(code), frame.f_lasti
            if owner == "user":
                if code.co_name == "<module>":
                    break
                has_user = True
        elif frames and owner == "ours":
            break
        if frames:
            remaining -= 1
        frame = frame.f_back
    return tuple(key), frames


def source_line() -> SourceLine:
    """Return the user's line that this is called from."""
    return line_of_frames(user_frames(2)[1])


def line_of_frames(frames: list[FrameType], *, cpp: bool = False) -> SourceLine:
    """Return the source line of frames that ``user_frames`` returned.

    Args:
        frames: Frames, innermost first.
        cpp: True for a call from C++.
    """
    part = _part_of_torch(frames[0] if frames else None)
    part = part or (TorchPart("c++") if cpp else None)
    if not frames:
        return SourceLine(part=part, cpp=cpp)
    owners = [owner_of(frame.f_code.co_filename) for frame in frames]
    user = owners.index("user") if "user" in owners else 0
    lines = [line_of(frame.f_code, frame.f_lineno) for frame in frames]
    inner, callers = tuple(lines[:user]), tuple(lines[user + 1 :])
    return replace(lines[user], part=part, cpp=cpp, inner=inner, callers=callers)


def line_of(code: CodeType, line: int) -> SourceLine:
    """Return a line of a function, also if torch's compiler has split the function."""
    return SourceLine(code.co_filename, line or code.co_firstlineno, original_name(code.co_name))


@cache
def compiled_files() -> tuple[str, ...]:
    """Return the beginnings of the names of files that torch's compiler writes."""
    folder = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    default = f"{tempfile.gettempdir()}{os.sep}torchinductor_"
    return (default, f"{folder}{os.sep}") if folder else (default,)


@cache
def owner_of(file: str) -> str:
    """Return the owner of code: ``user``, ``package``, ``ours``, ``torch`` or ``library``."""
    if is_ours(file):
        return "ours"
    if file.startswith(CELL_FILES):
        return "user"
    if file.startswith(TORCH_TESTS):
        return "package"
    if file.startswith(("<", TORCH, *compiled_files())):
        return "torch"
    if not is_library(file):
        return "user"
    if file.endswith("typing_extensions.py"):  # its wrapper around deprecated functions
        return "library"
    return "package" if is_installed(file) else "library"


# -------------------------------------------------------------------------------- parts of torch


def in_batch() -> bool:
    """Return True if batch_isend_irecv makes the call."""
    inner = itertools.takewhile(_is_within(API), _outward(sys._getframe(1)))
    return any(frame.f_code.co_name == "batch_isend_irecv" for frame in inner)


def called_by_ddp() -> bool:
    """Return True if DDP's reducer makes the call, or one of torch's hooks for it."""
    code = _caller(API)
    return code is not None and (
        code.co_name == "_engine_run_backward" or code.co_filename.startswith(DDP_HOOKS)
    )


def called_by_torch() -> bool:
    """Return True if code of torch makes the call itself."""
    code = _caller(())
    return code is not None and owner_of(code.co_filename) == "torch"


def _caller(files: tuple[str, ...]) -> CodeType | None:
    """Return the innermost function outside our hooks and these files."""
    outside = itertools.dropwhile(_is_within(files), _outward(sys._getframe(1)))
    return next((frame.f_code for frame in outside), None)


def _is_within(files: tuple[str, ...]) -> Callable[[FrameType], bool]:
    """Return the test for frames in our hooks and in these files."""
    inner = (HOOKS, *files)
    return lambda frame: frame.f_code.co_filename.startswith(inner)


def called_by_hook_of_user() -> bool:
    """Return True if code outside torch makes the call within the backward pass."""
    for frame in _outward(sys._getframe(1)):
        file = frame.f_code.co_filename
        if file.startswith(BACKWARD_FILES):
            return False
        if owner_of(file) in {"user", "package"}:
            return True
    return False


def _outward(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and those that called it."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _part_of_torch(until: FrameType | None) -> TorchPart | None:
    """Return the part of torch that makes the call, or None if the user's code does.

    Args:
        until: Innermost frame of the user or a package; None if the thread has none.
    """
    named: TorchPart | None = None
    inner = outer = ""
    for frame in itertools.takewhile(lambda frame: frame is not until, _outward(sys._getframe(1))):
        file = frame.f_code.co_filename
        if file.startswith((GRAPH, *compiled_files())):
            named = named or TorchPart("graph")
        elif owner_of(file) == "torch" and not file.startswith("<") and file not in API:
            known = known_part(file, frame.f_code.co_name)
            if named is None or (known and known.area == named.area == "ddp"):
                named = known  # of DDP's functions the outermost
            outer = _public(frame.f_globals.get("__name__", "")) or outer
            inner = inner or outer
    if named is None and until is None and outer:
        return TorchPart("thread", outer)
    return named or (TorchPart("module", inner) if inner else None)


def known_part(file: str, function: str) -> TorchPart | None:
    """Return the part of torch that a function belongs to, if users know it by a name."""
    file = file.replace("\\", "/")
    if file.endswith("/torch/_tensor.py") and function == "backward":
        return TorchPart("backward")
    if file.endswith("/torch/nn/parallel/distributed.py"):
        return TorchPart("ddp", DDP_FUNCTIONS.get(function, function))
    if file.endswith("/torch/distributed/_functional_collectives.py"):
        return TorchPart("functional", function)
    return TorchPart("dtensor") if "/torch/distributed/tensor/" in file else None


def _public(module: str) -> str:
    """Return the public part of a module's name; empty for ``torch`` alone."""
    parts = itertools.takewhile(lambda part: not part.startswith("_"), module.split("."))
    name = ".".join(parts)
    return name if "." in name else ""
