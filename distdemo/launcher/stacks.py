"""Locate a rank, at the deadline or when it crashes, from the stack that faulthandler writes.

At the deadline the launcher signals every rank that has not returned; faulthandler's handler, in
C, writes the Python stacks of all threads into the rank's pipe, even while they wait in gloo, NCCL
or RPC. The main thread's distinguishes a rank that sleeps from those that wait for it. A rank that
crashes writes the stack of the thread that did, as the last thing in its pipe.
"""

from __future__ import annotations

import faulthandler
import linecache
import os
import re
import signal
import sysconfig
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import islice, takewhile
from pathlib import PurePath

from distdemo.launcher.records import CodeLine, Position, ThreadPosition

SIGNAL: int = getattr(signal, "SIGRTMIN", signal.SIGUSR1)
"""Signal that requests a stack: a real-time signal, which programs rarely use."""

MAX_OTHERS = 8  # positions of other threads
MAX_CALLERS = 2  # lines that called the function of a position
CELL_FILES = ("<shell ", "<In[")
"""Beginnings of the file names of cells, which are the user's code."""
_OURS = PurePath(__file__).parent.parent
_EXAMPLES = _OURS / "examples"
"""Folder of the examples in an installed package; they are the user's code."""
_LIBRARIES = [PurePath(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")]
_INSTALLED = frozenset({"site-packages", "dist-packages"})  # also the user site, and PYTHONPATH
_RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_\d+")  # the whole name
_HEADER = re.compile(r"^(?P<is_current>Current t|T)hread 0x", re.MULTILINE)
_WAITS = ("/torch/distributed/", "/torch/futures/")
"""Packages whose public functions wait for other ranks."""
_FRAME = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+) in (?P<function>.+)')


def write_stacks_to(fd: int) -> None:
    """Write stacks to this descriptor: on each ``SIGNAL`` all threads', at a crash its own.

    If faulthandler is enabled already (``PYTHONFAULTHANDLER``), crashes are reported as before.
    """
    faulthandler.register(SIGNAL, file=fd, all_threads=True, chain=False)
    os.register_at_fork(after_in_child=partial(faulthandler.unregister, SIGNAL))
    if not faulthandler.is_enabled():
        faulthandler.enable(file=fd, all_threads=False)
        os.register_at_fork(after_in_child=faulthandler.disable)  # a child's crash isn't the rank's


def locate(stacks: str) -> Position | None:
    """Return the position that stacks show, or None if the text contains no stack.

    Args:
        stacks: Output of faulthandler: the threads' stacks, most recent call first. The current
            thread is the one that got the signal, which is the main thread, or that crashed.
    """
    starts = [match.start() for match in _HEADER.finditer(stacks)] or [0]
    texts = [stacks[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]
    current = next((text for text in texts if text.startswith("Current")), texts[0])
    position = _position(current)
    if position is None:
        return None
    others = Counter(_position(text) for text in texts if text is not current)
    rows = [
        ThreadPosition(count, other.collective, other.source_line)
        for other, count in others.items()
        if other is not None and other.source_line.line
    ]
    return replace(position, others=tuple(rows[:MAX_OTHERS]))


def _position(stack: str) -> Position | None:
    """Return the position of one thread, or None if it has no frames."""
    frames = [match.groupdict() for match in _FRAME.finditer(stack)]
    if not frames:
        return None
    collective = ""
    outside = (frame for frame in frames if not is_ours(frame["file"]))
    innermost = next(outside, None)  # our hooks may be within it
    for depth, frame in enumerate(frames):
        file, function = frame["file"], frame["function"]
        if is_ours(file):
            if function == "rank_main":  # the frames below are the forked launcher's
                break
            if function == "barrier":  # Rank.barrier, a barrier over the store
                collective = "barrier"
        elif not is_library(file):
            if frame is innermost and ".wait(" in linecache.getline(file, int(frame["line"])):
                collective = "wait"  # a handle's method is C++ and has no frame
            return Position(collective, _line(frame), _callers(frames[depth + 1 :]))
        elif (
            any(package in file.replace("\\", "/") for package in _WAITS)
            and not function.startswith("_")
            and function != "wrapper"
        ):
            collective = function  # the outermost function is the one that the user called
    return Position(collective, CodeLine())


def _callers(frames: list[dict[str, str]]) -> tuple[CodeLine, ...]:
    """Return the nearest lines of the user's code in these frames."""
    lines = (
        _line(frame)
        for frame in takewhile(lambda frame: not is_ours(frame["file"]), frames)
        if not is_library(frame["file"])
    )
    return tuple(islice(lines, MAX_CALLERS))


def _line(frame: dict[str, str]) -> CodeLine:
    return CodeLine(frame["file"], int(frame["line"]), original_name(frame["function"]))


def is_ours(file: str) -> bool:
    """Return True if the file belongs to distdemo."""
    path = PurePath(file)
    return path.is_relative_to(_OURS) and not path.is_relative_to(_EXAMPLES)


def is_library(file: str) -> bool:
    """Return True if the file belongs to the standard library or an installed package."""
    path = PurePath(file)
    if file.startswith(CELL_FILES) or path.is_relative_to(_EXAMPLES):
        return False
    if file.startswith("<") or is_installed(file):
        return True
    return any(path.is_relative_to(place) for place in _LIBRARIES)


def is_installed(file: str) -> bool:
    """Return True if the file belongs to an installed package."""
    return not _INSTALLED.isdisjoint(PurePath(file).parts)


def original_name(function: str) -> str:
    """Return a function's name in the source, also if torch's compiler has split it."""
    match = _RESUMED.fullmatch(function)
    return match[1] if match else function
