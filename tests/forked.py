"""Tests that would leave something behind in the tests' own process, such as an MPI library."""

from __future__ import annotations

import multiprocessing
import os
import sys
import traceback
from typing import TYPE_CHECKING

from commands import forget_forkserver

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection


def in_a_child(work: Callable[[], object]) -> None:
    """Run this in a process forked from here; fail with what it raised."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=send, args=(work, there))
    process.start()
    there.close()
    try:
        problem = here.recv() if here.poll(110) else "it did not end"
    except EOFError:
        problem = "it died"
    process.kill()
    process.join()
    assert not problem, problem


def send(work: Callable[[], object], result_pipe: Connection) -> None:
    problem = ""
    forget_forkserver()
    try:
        work()
    except BaseException:  # noqa: BLE001 - the parent is told
        problem = traceback.format_exc()
    end_mpi()
    result_pipe.send(problem)
    os._exit(0)


def end_mpi() -> None:
    """End the MPI that the work may have begun: MPICH would leave its shared memory behind."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.Finalize()
