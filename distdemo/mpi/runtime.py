"""MPI in this process: initialize and finalize it, wait, and translate its errors.

MPI can be initialized only once per process, so destroying a group doesn't finalize it.
"""

from __future__ import annotations

import atexit
import os
import re
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from os import sched_yield

import mpi4py
import torch.distributed as dist
from mpi4py import MPI

from distdemo.errors import UsageError

FLUSH_S = 0.3  # for mpiexec to forward the last output before it is aborted
FAILED_EXIT_TIMEOUT_S = 5.0  # for the other ranks at exit, if something failed here
YIELD_S = 2.0  # seconds of polling with yields
SLEEP_S = 1e-4  # between polls after that, so that long waits cost little


class State:
    """MPI state of this process.

    Attributes:
        ours: True if this module initialized MPI and so finalizes it.
        process: Process that initialized it. A fork copies the memory, but has no MPI.
        failed: True if an op failed or timed out, so other ranks may never reach the exit.
        timeout: Seconds to wait for the other ranks at exit.
    """

    ours = False
    process = 0
    failed = False
    timeout = 1800.0


# ----------------------------------------------------------------------------- begin and end


def begin() -> None:
    """Initialize MPI, once, and request mpi4py's thread level.

    Raises:
        UsageError: MPI is finalized already, or this process wasn't started as a rank.
    """
    if MPI.Is_finalized():
        raise UsageError(
            "MPI is already finalized in this process.",
            "It can be initialized only once per process.",
            "Create the process group before MPI.Finalize is called.",
        )
    if not MPI.Is_initialized():
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="suspicious MPI")  # reported in detail below
            MPI.Init_thread(getattr(MPI, f"THREAD_{mpi4py.rc.thread_level.upper()}"))
        State.ours = True
        State.process = os.getpid()
        atexit.register(finalize)
    MPI.COMM_WORLD.Set_errhandler(MPI.ERRORS_RETURN)
    _check_not_alone()


def finalize() -> None:
    """Finalize MPI at exit, if it was initialized here and the other ranks exit too.

    MPI_Finalize waits for ranks that may be waiting for this one. So a rank that crashed aborts
    the world, and a rank whose peers don't exit in time exits without finalizing. After a failed
    op that time is short: the launcher then sees the exit status and stops the other ranks.
    """
    if not State.ours or State.process != os.getpid():
        return
    if MPI.Is_finalized() or not MPI.Is_initialized():
        return
    if getattr(sys, "last_type", None) is not None:  # an uncaught exception
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # closed, or its reader is gone
                stream.flush()
        time.sleep(FLUSH_S)
        MPI.COMM_WORLD.Abort(1)
    timeout = min(State.timeout, FAILED_EXIT_TIMEOUT_S) if State.failed else State.timeout
    with suppress(MPI.Exception):
        barrier = MPI.COMM_WORLD.Ibarrier()
        if done_in_time(barrier.Test, timeout):
            MPI.Finalize()


# --------------------------------------------------------------------------------- launchers

_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "WORLD_SIZE")
"""Variables that launchers set to the number of processes."""


def library() -> str:
    """Return name and version of the MPI library: ``MPICH 5.0.2``."""
    name, version = MPI.get_vendor()
    return f"{name} {'.'.join(map(str, version))}"


def _check_not_alone() -> None:
    """Raise `UsageError` if a launcher started several processes and MPI has one rank."""
    if MPI.COMM_WORLD.Get_size() > 1:
        return
    for variable in _SIZES:
        count = os.environ.get(variable, "1")
        if count.isdigit() and int(count) > 1:
            raise UsageError(
                f"{count} processes were started, but MPI says that each is rank 0 of 1.",
                f"{variable} is {count}; the library that mpi4py loads is {library()}, "
                "which needs its own launcher.",
                _hint(int(count)),
            )


def check_rank(rank: int, world_size: int) -> None:
    """Raise `UsageError` if rank or world size differ from MPI's; -1 means not given."""
    world = MPI.COMM_WORLD
    if rank in (-1, world.rank) and world_size in (-1, world.size):
        return
    raise UsageError(
        f"init_process_group got rank {rank} of {world_size}, "
        f"but MPI says that this process is rank {world.rank} of {world.size}.",
        f"MPI assigns the ranks; the library that mpi4py loads is {library()}.",
        f"Leave rank and world_size out. {_hint(world_size)}",
    )


def _hint(ranks: int) -> str:
    if os.environ.get("TORCHELASTIC_RUN_ID") == "distdemo":
        return "distdemo starts ranks over MPI, too: add --backend mpi."
    return (
        f"Start the program with the mpiexec of that library: mpiexec -n {ranks} python program.py "
        "(the mpiexec next to this Python, if it came as a wheel), or use another backend."
    )


# ------------------------------------------------------------------------------------ waiting


def done_in_time(test: Callable[[], bool], seconds: float) -> bool:
    """Poll until `test` returns True, with yields, later with sleeps; return False on timeout.

    Yields, because with more ranks than cores a rank must leave the core to the one it waits for.

    Args:
        test: Function that returns True when done; calling it lets MPI make progress.
        seconds: Timeout.
    """
    started = time.monotonic()
    while not test():
        waited = time.monotonic() - started
        if waited > seconds:
            return False
        if waited > YIELD_S:
            time.sleep(SLEEP_S)
        else:
            sched_yield()
    return True


# ------------------------------------------------------------------------------------- errors

_LOST = re.compile(
    r"connection|peer|failed process|proc(ess)?[ _]?failed|unreachable|broken pipe|closed|reset",
    re.IGNORECASE,
)
_LOST_CLASSES = frozenset({MPI.ERR_PROC_ABORTED, MPI.ERR_PROC_FAILED, MPI.ERR_REVOKED})


class MpiError(dist.DistBackendError):
    """An op failed or timed out.

    Attributes:
        lost_peer: True if another rank is gone, or did not take part in time. The launcher reads
            it, to tell causes from consequences.
    """

    def __init__(self, text: str, *, lost_peer: bool) -> None:
        super().__init__(text)
        self.lost_peer = lost_peer


def translated(error: MPI.Exception, what: str) -> MpiError:
    """Return MPI's error as torch's, with the op, the rank and MPI's text.

    If MPI reports a lost rank, the text says "a peer has died".

    Args:
        error: Exception of mpi4py.
        what: Name of the op, ``all_reduce``.
    """
    State.failed = True
    text = " ".join(error.Get_error_string().split())
    lost_peer = error.Get_error_class() in _LOST_CLASSES or _LOST.search(text) is not None
    text = f"{what} over MPI failed on rank {MPI.COMM_WORLD.rank}: {text}"
    if lost_peer:
        text += " (a peer has died or closed its connection)"
    elif error.Get_error_class() in (MPI.ERR_ARG, MPI.ERR_COUNT):
        text += " (before MPI 4, and in Open MPI 5, calls are limited to 2^31 - 1 elements)"
    return MpiError(text, lost_peer=lost_peer)


def timed_out(what: str, seconds: float) -> MpiError:
    """Return the error of an op that timed out: other ranks never arrived, or are stuck."""
    State.failed = True
    return MpiError(
        f"{what} over MPI timed out after {seconds:g} s on rank {MPI.COMM_WORLD.rank}: "
        "not all ranks that it needs took part in time",
        lost_peer=True,
    )


def expect(condition: bool, text: str) -> None:
    """Raise `ValueError` unless the condition holds; for arguments, before MPI is called."""
    if not condition:
        raise ValueError(text)
