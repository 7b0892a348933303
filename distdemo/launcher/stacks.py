"""Where a rank stands when time is up: read from the stack that faulthandler writes.

At the deadline the launcher signals every rank that has not returned; faulthandler's handler, in
C, writes the Python stack of the main thread into the rank's pipe, even while that thread waits
in gloo or NCCL. So a rank that sleeps can be told from those that wait for it.
"""

from __future__ import annotations

import faulthandler
import linecache
import re
import signal
import sysconfig
from pathlib import PurePath

from distdemo.launcher.records import Where

SIGNAL: int = getattr(signal, "SIGRTMIN", signal.SIGUSR1)
"""The signal that asks for a stack: a real-time one, which programs rarely use."""

_LIBRARIES = [PurePath(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")]
_INSTALLED = frozenset({"site-packages", "dist-packages"})  # the user's own, and on PYTHONPATH
_FRAME = re.compile(r'File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)')


def answer_on(fd: int) -> None:
    """In a rank: from now on, answer ``SIGNAL`` with the main thread's stack on this descriptor."""
    faulthandler.register(SIGNAL, file=fd, all_threads=False, chain=False)


def locate(stack: str) -> Where | None:
    """Where a stack says that its thread is; None if there is no stack in the text.

    Args:
        stack: faulthandler's text, most recent call first.
    """
    frames = [match.groupdict() for match in _FRAME.finditer(stack)]
    if not frames:
        return None
    collective = ""
    for frame in frames:
        file, function = frame["file"], frame["function"]
        if is_ours(file):
            if function == "live":  # a rank's whole life: below is what a fork has inherited
                break
            if function == "meet":  # Rank.meet, which waits for the others at the store
                collective = "meet"
        elif not is_library(file):
            if frame is frames[0] and ".wait(" in linecache.getline(file, int(frame["line"])):
                collective = "wait"  # a handle's is C++ and so has no frame of its own
            return Where(collective, f"{PurePath(file).name}:{frame['line']} in {function}")
        elif (
            "/torch/distributed/" in file.replace("\\", "/")
            and not function.startswith("_")
            and function != "wrapper"
        ):
            collective = function  # the outermost one is the one that the user called
    return Where(collective, "")


def is_ours(file: str) -> bool:
    """Whether a frame of this file is distdemo's own."""
    return PurePath(file).is_relative_to(PurePath(__file__).parent.parent)


def is_library(file: str) -> bool:
    """Whether a frame of this file is the standard library's or an installed package's."""
    path = PurePath(file)
    if file.startswith("<") or not _INSTALLED.isdisjoint(path.parts):
        return True
    return any(path.is_relative_to(place) for place in _LIBRARIES)
