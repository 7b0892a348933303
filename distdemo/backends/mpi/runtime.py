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

from distdemo.backends.mpi.waiting import done_in_time
from distdemo.errors import UsageError

_LEVELS = {
    "single": MPI.THREAD_SINGLE,
    "funneled": MPI.THREAD_FUNNELED,
    "serialized": MPI.THREAD_SERIALIZED,
    "multiple": MPI.THREAD_MULTIPLE,
}
_SIZES = (
    # Where a launcher writes how many processes it started.
    ("OMPI_COMM_WORLD_SIZE", "Open MPI's mpiexec"),
    ("PMI_SIZE", "an mpiexec of MPICH or Intel MPI"),
    ("SLURM_STEP_NUM_TASKS", "Slurm's srun"),
    ("WORLD_SIZE", "torchrun, or what sets WORLD_SIZE,"),
)


LAST_WORDS = 0.3  # seconds
SHORT = 5.0  # seconds to wait for the others at the end if an op failed here


class State:
    """What this process knows of its MPI.

    Attributes:
        ours: MPI was begun here, so it is ended here.
        failed: an op failed or ran out of time, so other ranks may never come to the end.
        patience: seconds to wait for the others at the end.
    """

    ours = False
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
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="suspicious MPI")  # said below, in full
            MPI.Init_thread(_LEVELS[mpi4py.rc.thread_level])
        State.ours = True
        atexit.register(end)
    MPI.COMM_WORLD.Set_errhandler(MPI.ERRORS_RETURN)
    _expect_company()


def _expect_company() -> None:
    """Refuse to be one of one where a launcher says that it started several."""
    if MPI.COMM_WORLD.Get_size() > 1:
        return
    for variable, launcher in _SIZES:
        said = os.environ.get(variable, "1")
        if said.isdigit() and int(said) > 1:
            raise UsageError(
                f"{launcher} started {said} processes, but MPI says that each is rank 0 of 1.",
                f"{variable} is {said}; the library that mpi4py loads is {library()}, "
                "which that launcher does not belong to.",
                "A mixed installation: start the program with the mpiexec of that library "
                "(the one beside this Python, if both came from wheels).",
            )


def agree(rank: int, world_size: int) -> None:
    """Refuse a rank and a world size that contradict MPI's; -1 stands for not given.

    Raises:
        UsageError: they do.
    """
    world = MPI.COMM_WORLD
    if rank in (-1, world.rank) and world_size in (-1, world.size):
        return
    mixed = world.size == 1 < world_size
    raise UsageError(
        f"This process was to be rank {rank} of {world_size}, "
        f"but MPI says that it is rank {world.rank} of {world.size}.",
        f"MPI numbers the ranks itself; the library that mpi4py loads is {library()}."
        + (" It does not belong to what started this process." if mixed else ""),
        "A mixed installation: start the program with the mpiexec of that library."
        if mixed
        else "Leave rank and world_size out: MPI knows them.",
    )


def library() -> str:
    """The name and version of the MPI library, ``MPICH 5.0.2``."""
    name, version = MPI.get_vendor()
    return f"{name} {'.'.join(map(str, version))}"


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
    others with it, and one that meets nobody in time leaves without.
    """
    if not State.ours or MPI.Is_finalized() or not MPI.Is_initialized():
        return
    if getattr(sys, "last_type", None) is not None:  # an exception that nobody caught
        _say_last_words()
        MPI.COMM_WORLD.Abort(1)
    patience = min(State.patience, SHORT) if State.failed else State.patience
    with suppress(MPI.Exception):
        if done_in_time(MPI.COMM_WORLD.Ibarrier().Test, patience):
            MPI.Finalize()
