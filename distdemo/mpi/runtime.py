"""MPI in this process: begun by the first group, ended at exit unless that could hang.

MPI can be begun once in a process and never again, so a group's end does not end it.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import time
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path

import mpi4py
from mpi4py import MPI

from distdemo.errors import UsageError
from distdemo.mpi import company, leaving
from distdemo.mpi.waiting import done_in_time

_LEVELS = {
    "single": MPI.THREAD_SINGLE,
    "funneled": MPI.THREAD_FUNNELED,
    "serialized": MPI.THREAD_SERIALIZED,
    "multiple": MPI.THREAD_MULTIPLE,
}

LAST_WORDS = 0.3  # seconds
SHORT = 5.0  # seconds to wait for the others at the end if something failed here


class State:
    """What this process knows of its MPI.

    Attributes:
        ours: MPI was begun here, so it is ended here.
        process: the one that began it; one that it forks has the same memory, but no MPI.
        failed: an op failed or ran out of time, so other ranks may never come to the end.
        patience: seconds to wait for the others at the end.
    """

    ours = False
    process = 0
    failed = False
    patience = 1800.0


def begin() -> None:
    """Initialise MPI, once, with as much freedom for threads as it gives.

    Raises:
        UsageError: MPI has ended already, or this process was not started as a rank of it.
    """
    if MPI.Is_finalized():
        raise UsageError(
            "MPI has ended in this process.",
            "It can be begun once in the life of a process.",
            "Make the process group before anything calls MPI.Finalize.",
        )
    if not MPI.Is_initialized():
        company.expect_understanding()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="suspicious MPI")  # said below, in full
            MPI.Init_thread(_LEVELS[mpi4py.rc.thread_level])
        State.ours, State.process = True, os.getpid()
        leaving.listen_to_exits()
        atexit.register(end)
    MPI.COMM_WORLD.Set_errhandler(MPI.ERRORS_RETURN)
    company.expect_company()


def exclusive() -> threading.RLock | None:
    """The lock that every call of MPI has to take; None where MPI takes calls from all threads."""
    return None if MPI.Query_thread() == MPI.THREAD_MULTIPLE else _LOCK


_LOCK = threading.RLock()


@cache
def takes_cuda() -> bool:
    """Whether the MPI library reads and writes the memory of CUDA devices."""
    if MPI.get_vendor()[0] == "Intel MPI":
        return os.environ.get("I_MPI_OFFLOAD", "0") not in ("", "0")
    with suppress(OSError, AttributeError):
        return bool(ctypes.CDLL(_library_file()).MPIX_Query_cuda_support())
    return False


def _library_file() -> str | None:
    """The file of the MPI library in this process's memory; None: look among all its symbols."""
    with suppress(OSError):
        for line in Path("/proc/self/maps").read_text().splitlines():
            path = line.partition("/")[2]
            if Path(path).name.startswith("libmpi") and ".so" in path:
                return f"/{path}"
    return None


def _say_last_words() -> None:
    """Write what is in the buffers, and give mpiexec time to pass it on: it stops when aborted."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # closed, or its reader is gone
            stream.flush()
    time.sleep(LAST_WORDS)


def end() -> None:
    """Finalise MPI at exit, if it was begun here and the other ranks come to their end too.

    MPI's own end would wait for ranks that may wait for this one. So a rank that crashed takes the
    others with it, and one that meets nobody in time leaves without. After ``sys.exit`` with a
    failure that time is short: then the launcher sees the exit status, and ends the others.
    """
    if not State.ours or State.process != os.getpid():
        return
    if MPI.Is_finalized() or not MPI.Is_initialized():
        return
    if leaving.crashed():
        _say_last_words()
        MPI.COMM_WORLD.Abort(1)
    hurried = State.failed or leaving.failed()
    patience = min(State.patience, SHORT) if hurried else State.patience
    with suppress(MPI.Exception):
        if done_in_time(MPI.COMM_WORLD.Ibarrier().Test, patience):
            MPI.Finalize()
