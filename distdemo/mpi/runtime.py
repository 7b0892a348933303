"""MPI in this process: how it begins and ends, how a rank waits, and what its errors become.

MPI can begin once in a process and never again, so the end of a group does not end it.
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

FLUSH_TIME = 0.3  # seconds that mpiexec gets to pass on the last output before it is aborted
SHORT = 5.0  # seconds to wait for the others at the end if something failed here
_LEVELS = {
    "single": MPI.THREAD_SINGLE,
    "funneled": MPI.THREAD_FUNNELED,
    "serialized": MPI.THREAD_SERIALIZED,
    "multiple": MPI.THREAD_MULTIPLE,
}


class State:
    """What this process knows of its MPI.

    Attributes:
        ours: MPI was begun here, so it is ended here.
        process: the one that began it; a process that it forks has the same memory, but no MPI.
        failed: an op failed or timed out, so other ranks may never come to the end.
        exit_failed: ``sys.exit`` was called with a status other than 0.
        timeout: seconds to wait for the others at the end.
        polls: how often a rank polls without a pause; few, until it is known that it has a core.
    """

    ours = False
    process = 0
    failed = False
    exit_failed = False
    timeout = 1800.0
    polls = 2


# ----------------------------------------------------------------------------- begin and end


def begin() -> None:
    """Initialize MPI, once, with as much freedom for threads as it gives.

    Raises:
        UsageError: MPI has ended already, or this process was not started as a rank of it.
    """
    if MPI.Is_finalized():
        raise UsageError(
            "MPI has ended in this process.",
            "It can begin only once in the life of a process.",
            "Make the process group before anything calls MPI.Finalize.",
        )
    if not MPI.Is_initialized():
        _check_pmix()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="suspicious MPI")  # told below, in full
            MPI.Init_thread(_LEVELS[mpi4py.rc.thread_level])
        State.ours, State.process = True, os.getpid()
        _note_exit_status()
        atexit.register(end)
    MPI.COMM_WORLD.Set_errhandler(MPI.ERRORS_RETURN)
    _check_not_alone()


def end() -> None:
    """Finalize MPI at exit, if it was begun here and the other ranks come to their end too.

    MPI's own end would wait for ranks that may wait for this one. So a rank that crashed aborts the
    others, and one that doesn't meet the others in time leaves without finalizing. After
    ``sys.exit`` with a failure that time is short: the launcher then sees the exit status and ends
    the others.
    """
    if not State.ours or State.process != os.getpid():
        return
    if MPI.Is_finalized() or not MPI.Is_initialized():
        return
    if getattr(sys, "last_type", None) is not None:  # an exception that nobody caught
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # closed, or its reader is gone
                stream.flush()
        time.sleep(FLUSH_TIME)
        MPI.COMM_WORLD.Abort(1)
    hurried = State.failed or State.exit_failed
    with suppress(MPI.Exception):
        barrier = MPI.COMM_WORLD.Ibarrier()
        if done_in_time(barrier.Test, min(State.timeout, SHORT) if hurried else State.timeout):
            MPI.Finalize()


def _note_exit_status() -> None:
    """From now on note what ``sys.exit`` is called with: Python doesn't tell it to atexit."""
    original = sys.exit

    @wraps(original)
    def leave(status: object = None, /) -> NoReturn:
        if threading.current_thread() is threading.main_thread():  # elsewhere it ends a thread
            State.exit_failed = status is not None and status != 0  # a text counts as 1
        original(status)  # type: ignore[arg-type]  # typed as what is of use, takes anything

    sys.exit = leave


@cache
def takes_cuda() -> bool:
    """Whether the MPI library reads and writes the memory of CUDA devices."""
    if MPI.get_vendor()[0] == "Intel MPI":
        return os.environ.get("I_MPI_OFFLOAD", "0") not in ("", "0")
    with suppress(OSError, AttributeError):
        return bool(ctypes.CDLL(MPI.__file__).MPIX_Query_cuda_support())
    return False


# --------------------------------------------------------------------------------- launchers

_LAUNCHERS = (
    # the variable in which it writes how many processes it started; its name; starts ranks of MPI
    ("OMPI_COMM_WORLD_SIZE", "Open MPI's mpiexec", True),
    ("PMI_SIZE", "An mpiexec of MPICH or Intel MPI", True),
    ("SLURM_STEP_NUM_TASKS", "Slurm's srun", True),
    ("WORLD_SIZE", "torchrun (or whatever set WORLD_SIZE)", False),
)
_MIXED = (
    "A mixed installation: start the program with the mpiexec of that library "
    "(the one beside this Python, if both came from wheels)."
)
_SPEAKS_PMIX = re.compile(r"--with-(?:pmi=|pmilib=)?pmix", re.IGNORECASE)


def library() -> str:
    """The name and version of the MPI library, ``MPICH 5.0.2``."""
    name, version = MPI.get_vendor()
    return f"{name} {'.'.join(map(str, version))}"


def _check_pmix() -> None:
    """Refuse to begin MPI where MPICH would end the process without a word.

    It does so where it finds PMIX_NAMESPACE, which launchers of Open MPI set, and was not built for
    PMIx (its ``check_MPIR_CVAR_PMI_VERSION``).
    """
    if MPI.get_vendor()[0] != "MPICH" or "PMIX_NAMESPACE" not in os.environ:
        return
    if "MPIR_CVAR_PMI_VERSION" in os.environ or _SPEAKS_PMIX.search(MPI.Get_library_version()):
        return
    ompi = "OMPI_COMM_WORLD_SIZE" in os.environ
    launcher = "Open MPI's mpiexec" if ompi else "A launcher that speaks PMIx"
    raise UsageError(
        f"{launcher} started this process, but the library that mpi4py loads is {library()}.",
        "PMIX_NAMESPACE is set, and that library was not built for PMIx: it would end the process.",
        _MIXED,
    )


def _check_not_alone() -> None:
    """Refuse to be one rank of one where a launcher says that it started several."""
    if MPI.COMM_WORLD.Get_size() > 1:
        return
    known = _LAUNCHERS[-1:] if "TORCHELASTIC_RUN_ID" in os.environ else _LAUNCHERS
    for variable, name, of_mpi in known:
        said = os.environ.get(variable, "1")
        if not said.isdigit() or int(said) <= 1:
            continue
        if of_mpi:
            why, hint = "which that launcher does not belong to.", _MIXED
        else:
            why = "which learns of other ranks from a launcher of MPI alone."
            hint = f"{_by_mpiexec(int(said))}; or take another backend, such as gloo."
        raise UsageError(
            f"{name} started {said} processes, but MPI says that each is rank 0 of 1.",
            f"{variable} is {said}; the library that mpi4py loads is {library()}, {why}",
            hint,
        )


def check_place(rank: int, world_size: int) -> None:
    """Refuse a rank and a world size that contradict MPI's; -1 stands for not given.

    Raises:
        UsageError: they do.
    """
    world = MPI.COMM_WORLD
    if rank in (-1, world.rank) and world_size in (-1, world.size):
        return
    alone = world.size == 1 < world_size
    raise UsageError(
        f"This process was to be rank {rank} of {world_size}, "
        f"but MPI says that it is rank {world.rank} of {world.size}.",
        f"MPI numbers the ranks itself; the library that mpi4py loads is {library()}.",
        f"{_by_mpiexec(world_size)}. If one did start them, it is another MPI's: "
        "a mixed installation."
        if alone
        else "Leave rank and world_size out: MPI knows them.",
    )


def _by_mpiexec(ranks: int) -> str:
    return (
        f"MPI's ranks are started by mpiexec or srun: mpiexec -n {ranks} python program.py "
        "(the mpiexec beside this Python, if it came as a wheel)"
    )


# ------------------------------------------------------------------------------------ waiting

POLLS_ON_OWN_CORE = 200  # polls without a pause
YIELDING = 2.0  # seconds of polls with a yield between them
PAUSE = 1e-4  # seconds between polls after that: a rank that waits for long costs little


def note_ranks_here(ranks: int) -> None:
    """Take note of how many ranks run on this machine.

    Where there are more ranks than cores, one that polls without yielding takes the core from the
    one that it waits for.
    """
    State.polls = POLLS_ON_OWN_CORE if ranks <= (os.cpu_count() or 1) else State.polls


def done_in_time(test: Callable[[], bool], seconds: float) -> bool:
    """Poll until the test is passed; False if that takes longer.

    Args:
        test: whether it is done; MPI goes on with it when it is called.
        seconds: when to give up.
    """
    for _ in range(State.polls):
        if test():
            return True
    began = time.monotonic()
    while not test():
        waited = time.monotonic() - began
        if waited > seconds:
            return False
        if waited > YIELDING:
            time.sleep(PAUSE)
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
    """MPI's error as torch's, with the op, the rank and MPI's own words.

    Where MPI tells that another rank is gone, so does the text: "a peer has died".

    Args:
        error: what mpi4py raised.
        what: the op, ``all_reduce``.
    """
    State.failed = True
    text = " ".join(error.Get_error_string().split())
    text = f"{what} over MPI failed on rank {MPI.COMM_WORLD.rank}: {text}"
    if error.Get_error_class() in _LOST_CLASSES or _LOST.search(text):
        text += " (a peer has died or closed its connection)"
    elif error.Get_error_class() in (MPI.ERR_ARG, MPI.ERR_COUNT):
        text += " (a library older than MPI 4, as Open MPI 5 is, takes less than 2^31 elements)"
    elif error.Get_error_class() == MPI.ERR_TRUNCATE:
        text += " (the other side sent more than the tensor here holds)"
    return dist.DistBackendError(text)


def timed_out(what: str, seconds: float) -> dist.DistBackendError:
    """The error of an op that was not done in time: other ranks never came, or are stuck."""
    State.failed = True
    return dist.DistBackendError(
        f"{what} over MPI timed out after {seconds:g} s on rank {MPI.COMM_WORLD.rank}: "
        "not every rank that it needs took part in time"
    )


def expect(condition: bool, text: str) -> None:
    """Refuse what the caller gave, before any call of MPI.

    Raises:
        ValueError: the condition does not hold.
    """
    if not condition:
        raise ValueError(text)
