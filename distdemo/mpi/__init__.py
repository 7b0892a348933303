"""The backend ``mpi`` of torch.distributed, on a torch from a wheel.

::

    import torch.distributed as dist
    import distdemo.mpi

    dist.init_process_group("mpi")

started with ``mpiexec -n 4 python program.py``. Importing is all there is to do, before or after
torch. Rank and world size come from MPI. A torch that was built with MPI keeps its own.

The library needs no other part of distdemo, and no store. What it promises beyond torch's own MPI
backend: all dtypes, reduce_scatter, avg and premul_sum, timeouts, and several threads.

- **Timeouts**: the one given to ``init_process_group`` or ``new_group`` holds for every op (beyond
  32 KiB for the coming of all ranks: see ``engine``), the one given to ``work.wait`` for that. An
  op out of time raises ``DistBackendError``; MPI can't take it back, so the group is of no more
  use, and the process leaves without ``MPI_Finalize``.
- **Threads**: MPI is asked for MPI_THREAD_MULTIPLE (``mpi4py.rc.thread_level`` says otherwise). If
  it gives less, calls take turns, and ``get_future`` waits for its op.
- **The end**: MPI is finalised at exit, not by ``destroy_process_group``: it can't begin again.
"""

from __future__ import annotations

import sys
from typing import Literal

import torch.distributed as dist

from distdemo.mpi.absent import needed


def _take_the_name() -> Literal["torch", "mpi4py"]:
    """Make ``mpi`` mean this package, unless torch has a backend of that name.

    Raises:
        ImportError: mpi4py, an MPI library or torch.distributed is missing.
    """
    if not dist.is_available():
        raise ImportError("This torch was built without torch.distributed.")
    if dist.is_mpi_available() and not dist.ProcessGroupMPI.__module__.startswith(__name__):
        return "torch"
    with needed():
        _leave_the_start_to_groups()
        from distdemo.mpi import registration
    registration.take_the_name()
    return "mpi4py"


def _leave_the_start_to_groups() -> None:
    """Keep mpi4py from beginning MPI on import, unless somebody has imported it already."""
    import mpi4py

    if "mpi4py.MPI" not in sys.modules:
        mpi4py.rc.initialize = False
        mpi4py.rc.finalize = False


provided_by = _take_the_name()
"""Whose ``mpi`` it is: ``torch`` where torch was built with MPI, else ``mpi4py``."""

__all__ = ["provided_by"]
