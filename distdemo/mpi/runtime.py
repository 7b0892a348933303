"""MPI in this process: initialize and finalize it, wait, and translate its errors.

MPI can be initialized only once per process, so destroying a group doesn't finalize it.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache, wraps
from os import sched_yield
from typing import NoReturn

import mpi4py
import torch.distributed as dist
from mpi4py import MPI

from distdemo.errors import UsageError

FLUSH_S = 0.3  # for mpiexec to forward the last output before it is aborted
FAILED_EXIT_TIMEOUT_S = 5.0  # for the other ranks at exit, if something failed here


class State:
    """MPI state of this process.

    Attributes:
        ours: True if this module initialized MPI and so finalizes it.
        process: Process that initialized it. A fork copies the memory, but has no MPI.
        failed: True if an op failed or timed out, so other ranks may never reach the exit.
        exit_failed: True if ``sys.exit`` was called with a status other than 0.
        timeout: Seconds to wait for the other ranks at exit.
        polls: Number of polls without a pause; few until it is known that each rank has a core.
    """

    ours = False
    process = 0
    failed = False
    exit_failed = False
    timeout = 1800.0
    polls = 2


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
        _check_pmix()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="suspicious MPI")  # reported in detail below
            MPI.Init_thread(getattr(MPI, f"THREAD_{mpi4py.rc.thread_level.upper()}"))
        State.ours, State.process = True, os.getpid()
        _record_exit_status()
        atexit.register(finalize)
    MPI.COMM_WORLD.Set_errhandler(MPI.ERRORS_RETURN)
    _check_not_alone()


def finalize() -> None:
    """Finalize MPI at exit, if it was initialized here and the other ranks exit too.

    MPI_Finalize waits for ranks that may be waiting for this one. So a rank that crashed aborts
    the world, and a rank whose peers don't exit in time exits without finalizing. After a failed
    op or ``sys.exit`` with a failure, that time is short: the launcher then sees the exit status
    and stops the other ranks.
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
    timeout = State.timeout
    if State.failed or State.exit_failed:
        timeout = min(timeout, FAILED_EXIT_TIMEOUT_S)
    with suppress(MPI.Exception):
        barrier = MPI.COMM_WORLD.Ibarrier()
        if done_in_time(barrier.Test, timeout):
            MPI.Finalize()


def _record_exit_status() -> None:
    """Wrap ``sys.exit`` to record its status, which Python doesn't pass to atexit."""
    original = sys.exit

    @wraps(original)
    def recording_exit(status: object = None, /) -> NoReturn:
        if threading.current_thread() is threading.main_thread():  # elsewhere it ends a thread
            State.exit_failed = status is not None and status != 0  # a string counts as 1
        original(status)  # type: ignore[arg-type]  # accepts more than its type

    sys.exit = recording_exit


@cache
def takes_cuda() -> bool:
    """Return True if the MPI library supports CUDA memory."""
    if MPI.get_vendor()[0] == "Intel MPI":
        return os.environ.get("I_MPI_OFFLOAD", "0") not in ("", "0")
    with suppress(OSError, AttributeError):
        return bool(ctypes.CDLL(MPI.__file__).MPIX_Query_cuda_support())
    return False


# --------------------------------------------------------------------------------- launchers

_LAUNCHERS = (
    # variable that it sets to the number of processes; its name; True if it starts MPI ranks
    ("OMPI_COMM_WORLD_SIZE", "Open MPI's mpiexec", True),
    ("PMI_SIZE", "An mpiexec of MPICH or Intel MPI", True),
    ("SLURM_STEP_NUM_TASKS", "Slurm's srun", True),
    ("WORLD_SIZE", "torchrun (or whatever set WORLD_SIZE)", False),
)
_MIXED = (
    "A mixed installation: start the program with the mpiexec of that library "
    "(the one next to this Python, if both came from wheels)."
)
_SPEAKS_PMIX = re.compile(r"--with-(?:pmi=|pmilib=)?pmix", re.IGNORECASE)


def library() -> str:
    """Return name and version of the MPI library: ``MPICH 5.0.2``."""
    name, version = MPI.get_vendor()
    return f"{name} {'.'.join(map(str, version))}"


def _check_pmix() -> None:
    """Raise `UsageError` if MPICH would exit without a message.

    It does so if PMIX_NAMESPACE is set, as by Open MPI's launchers, and it wasn't built for PMIx
    (its ``check_MPIR_CVAR_PMI_VERSION``).
    """
    if MPI.get_vendor()[0] != "MPICH" or "PMIX_NAMESPACE" not in os.environ:
        return
    if "MPIR_CVAR_PMI_VERSION" in os.environ or _SPEAKS_PMIX.search(MPI.Get_library_version()):
        return
    ompi = "OMPI_COMM_WORLD_SIZE" in os.environ
    launcher = "Open MPI's mpiexec" if ompi else "A PMIx launcher"
    raise UsageError(
        f"{launcher} started this process, but the library that mpi4py loads is {library()}.",
        "PMIX_NAMESPACE is set, and that library was not built for PMIx: it would end the process.",
        _MIXED,
    )


def _check_not_alone() -> None:
    """Raise `UsageError` if a launcher started several processes and MPI has one rank."""
    if MPI.COMM_WORLD.Get_size() > 1:
        return
    known = _LAUNCHERS[-1:] if "TORCHELASTIC_RUN_ID" in os.environ else _LAUNCHERS
    for variable, name, of_mpi in known:
        count = os.environ.get(variable, "1")
        if not count.isdigit() or int(count) <= 1:
            continue
        why = "which needs another launcher."
        hint = _MIXED
        if not of_mpi:
            why = "which needs an MPI launcher."
            hint = f"{_by_mpiexec(int(count))}; or use another backend, such as gloo."
        raise UsageError(
            f"{name} started {count} processes, but MPI says that each is rank 0 of 1.",
            f"{variable} is {count}; the library that mpi4py loads is {library()}, {why}",
            hint,
        )


def check_rank(rank: int, world_size: int) -> None:
    """Raise `UsageError` if rank or world size differ from MPI's; -1 means not given."""
    world = MPI.COMM_WORLD
    if rank in (-1, world.rank) and world_size in (-1, world.size):
        return
    alone = world.size == 1 < world_size
    raise UsageError(
        f"init_process_group got rank {rank} of {world_size}, "
        f"but MPI says that this process is rank {world.rank} of {world.size}.",
        f"MPI assigns the ranks; the library that mpi4py loads is {library()}.",
        f"{_by_mpiexec(world_size)}. If one did start them, it belongs to another MPI: "
        "a mixed installation."
        if alone
        else "Leave rank and world_size out: MPI knows them.",
    )


def _by_mpiexec(ranks: int) -> str:
    return (
        f"mpiexec or srun starts MPI's ranks: mpiexec -n {ranks} python program.py "
        "(the mpiexec next to this Python, if it came as a wheel)"
    )


# ------------------------------------------------------------------------------------ waiting

OWN_CORE_POLLS = 200  # polls without a pause if every rank has a core
YIELD_S = 2.0  # seconds of polling with yields
SLEEP_S = 1e-4  # between polls after that, so that long waits cost little


def set_polls(ranks: int) -> None:
    """Set the number of polls without a pause from the number of ranks on this machine.

    With more ranks than cores, polling without yielding takes the core from the rank waited for.
    """
    State.polls = OWN_CORE_POLLS if ranks <= (os.cpu_count() or 1) else State.polls


def done_in_time(test: Callable[[], bool], seconds: float) -> bool:
    """Poll until `test` returns True; return False on timeout.

    Args:
        test: Function that returns True when done; calling it lets MPI make progress.
        seconds: Timeout.
    """
    return poll(test, seconds, State.polls, YIELD_S, SLEEP_S)


def poll(
    test: Callable[[], bool], seconds: float, polls: int, yield_s: float, sleep_s: float
) -> bool:
    """Poll without a pause, then with yields, then with sleeps; return False on timeout."""
    for _ in range(polls):
        if test():
            return True
    started = time.monotonic()
    while not test():
        waited = time.monotonic() - started
        if waited > seconds:
            return False
        if waited > yield_s:
            time.sleep(sleep_s)
        else:
            sched_yield()
    return True


# ------------------------------------------------------------------------------------- errors

_LOST = re.compile(
    r"connection|peer|failed process|proc(ess)?[ _]?failed|unreachable|broken pipe|closed|reset",
    re.IGNORECASE,
)
_LOST_CLASSES = frozenset({MPI.ERR_PROC_ABORTED, MPI.ERR_PROC_FAILED, MPI.ERR_REVOKED})


def translated(error: MPI.Exception, what: str) -> dist.DistBackendError:
    """Return MPI's error as torch's, with the op, the rank and MPI's text.

    If MPI reports a lost rank, the text says "a peer has died".

    Args:
        error: Exception of mpi4py.
        what: Name of the op, ``all_reduce``.
    """
    State.failed = True
    text = " ".join(error.Get_error_string().split())
    text = f"{what} over MPI failed on rank {MPI.COMM_WORLD.rank}: {text}"
    if error.Get_error_class() in _LOST_CLASSES or _LOST.search(text):
        text += " (a peer has died or closed its connection)"
    elif error.Get_error_class() in (MPI.ERR_ARG, MPI.ERR_COUNT):
        text += " (before MPI 4, and in Open MPI 5, calls are limited to 2^31 - 1 elements)"
    elif error.Get_error_class() == MPI.ERR_TRUNCATE:
        text += " (the sender sent more elements than this tensor has)"
    return dist.DistBackendError(text)


def timed_out(what: str, seconds: float) -> dist.DistBackendError:
    """Return the error of an op that timed out: other ranks never arrived, or are stuck."""
    State.failed = True
    return dist.DistBackendError(
        f"{what} over MPI timed out after {seconds:g} s on rank {MPI.COMM_WORLD.rank}: "
        "not all ranks that it needs took part in time"
    )


def expect(condition: bool, text: str) -> None:
    """Raise `ValueError` unless the condition holds; for arguments, before MPI is called."""
    if not condition:
        raise ValueError(text)
